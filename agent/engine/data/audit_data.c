/* Compares the samples that count with the data. */
#include "agent/engine/data/audit.h"
#include "agent/engine/data/feed.h"

#include <stdlib.h>

/* Returns the order of the last generation that counts. */
static const json_t *order_of(struct audit *a)
{
	const struct audit_generation *g =
		a->n_steps ? data_audit_generation(a, a->steps[a->n_steps - 1].generation) : NULL;
	return g ? g->order : a->generations[a->n_generations - 1].order;
}

int data_audit_dataset(struct audit *a, const char *words, struct dataset **out, struct err *e)
{
	const json_t *order = order_of(a);
	int64_t seq = json_integer_value(json_object_get(order, "seq"));
	double validation = json_number_value(json_object_get(order, "validation"));
	if (words)
		return dataset_open(words, seq, validation, out, e);
	struct blend_source *list = calloc(LEDGER_SOURCES_MAX, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for the sources");
	int rc = dataset_open_list(list, data_ledger_sources(order, list, NULL, NULL), seq,
				   validation, out, e);
	free(list);
	return rc;
}

/* Whether the data has the sizes that the run recorded. */
static bool check_sizes(struct audit *a, const struct dataset *d)
{
	const json_t *sources = json_object_get(order_of(a), "sources");
	int64_t before = a->n_findings;
	if ((int)json_array_size(sources) != dataset_sources(d))
		data_audit_find(a, "the data has %d sources, the run had %zu", dataset_sources(d),
				json_array_size(sources));
	for (int i = 0; a->n_findings == before && i < dataset_sources(d); i++) {
		struct dataset_source is = dataset_source(d, i);
		const json_t *was = json_array_get(sources, (size_t)i);
		if (json_integer_value(json_object_get(was, "tokens")) != is.tokens ||
		    json_number_value(json_object_get(was, "weight")) != is.weight)
			data_audit_find(
				a,
				"%s has %lld tokens and the weight %g, the run had it with %lld "
				"and %g: the data was changed",
				is.path, (long long)is.tokens, is.weight,
				(long long)json_integer_value(json_object_get(was, "tokens")),
				json_number_value(json_object_get(was, "weight")));
	}
	return a->n_findings == before;
}

struct rereading {
	const struct dataset *data;
	const struct ranges *skips;
	uint64_t seed;
	int32_t *room; /* of a sample */
};

/* Reads a replica's samples of `steps` steps from `from` on, and adds their digests to the chain. */
static int chain_steps(const struct rereading *r, const struct ledger_line *l,
		       const struct ledger_replica *replica, int64_t from, int64_t steps,
		       struct digest *chain, struct err *e)
{
	struct digest step;
	for (int64_t s = from - l->from; s < from - l->from + steps; s++) {
		const struct feed_share share = { r->skips, l->first,
						  s * l->global + replica->offset, replica->share };
		if (data_feed_digest(r->data, DATA_TRAIN, r->seed, INT32_MAX, &share, r->room,
				     &step, e))
			return -1;
		data_ledger_chain(chain, &step);
	}
	return 0;
}

/* The digest that the line should have for the replica. It covers undone pieces too. */
static int read_again(const struct rereading *r, const struct ledger_line *l,
		      const struct ledger_replica *replica, struct digest *out, struct err *e)
{
	int64_t from = l->from;
	*out = (struct digest){ { 0 } };
	if (!l->pieces)
		return chain_steps(r, l, replica, from, l->whole - from, out, e);
	for (int i = 0; i < l->n_pieces; i++)
		for (int64_t k = 0; k < l->pieces[i].count; k++) {
			struct digest piece = { { 0 } };
			if (chain_steps(r, l, replica, from, l->pieces[i].steps, &piece, e))
				return -1;
			data_ledger_chain(out, &piece);
			from += l->pieces[i].steps;
		}
	return 0;
}

static int check_line(struct audit *a, const struct ledger_line *l, const struct rereading *r,
		      struct err *e)
{
	struct digest digest;
	for (int i = 0; i < l->n; i++) {
		const struct ledger_replica *replica = &l->replicas[i];
		if (read_again(r, l, replica, &digest, e))
			return -1;
		if (!ckpt_digest_equal(&digest, &replica->digest))
			data_audit_find(a,
					"steps %lld to %lld of generation %lld: the replica of "
					"samples %lld to %lld of each batch read tokens that "
					"differ from the data",
					(long long)l->from + 1, (long long)l->whole,
					(long long)l->generation, (long long)replica->offset,
					(long long)(replica->offset + replica->share) - 1);
	}
	return 0;
}

int data_audit_data(struct audit *a, const struct dataset *d,
		    void (*moved)(int64_t samples, void *arg), void *arg, struct err *e)
{
	uint64_t seed = strtoull(json_string_value(json_object_get(order_of(a), "seed")), NULL, 10);
	if (!check_sizes(a, d))
		return 0;
	struct rereading r = { .data = d,
			       .seed = seed,
			       .room = malloc(2 * (size_t)dataset_seq(d) * sizeof *r.room) };
	if (!r.room)
		return err_set(e, ERR_NOMEM, "no memory for a sample");
	int rc = 0;
	for (int64_t i = 0; i < a->n_steps && !rc; i++) {
		const struct audit_generation *g = data_audit_generation(a, a->steps[i].generation);
		r.skips = g ? g->skips : NULL;
		rc = check_line(a, &a->steps[i], &r, e);
		if (moved)
			moved(a->steps[i].end - a->first, arg);
	}
	free(r.room);
	return rc;
}
