/* Parses the lines of a ledger. The bytes are not trusted. */
#include "agent/engine/data/ledger_lines.h"
#include "base/json_member.h"

#include <stdlib.h>
#include <string.h>

/* The product of two such numbers fits 63 bits. */
enum { GLOBAL_MAX = 1 << 30 };
static const int64_t step_most = 1000000000000;

static int get_head(const json_t *o, struct ledger_line *l, struct err *e)
{
	const char *format = json_string_value(json_object_get(o, "format"));
	if (!format || strcmp(format, LEDGER_FORMAT))
		return err_set(e, ERR_CORRUPT, "\"format\" is not " LEDGER_FORMAT);
	l->kind = LEDGER_HEAD;
	return json_member_int64(o, "version", 1, INT32_MAX, &l->version, e) ||
			       (json_member_given(json_object_get(o, "holds")) &&
				json_member_int64(o, "holds", 1, UINT32_MAX, &l->holds, e))
		       ? -1
		       : 0;
}

int data_ledger_check(const struct ledger_line *head, struct err *e)
{
	if (head->version <= LEDGER_VERSION)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "a newer muster wrote the file (version %lld of " LEDGER_FORMAT
		       "; this muster knows versions up to %d); use that muster",
		       (long long)head->version, LEDGER_VERSION);
}

static int check_source(const json_t *s, struct err *e)
{
	int64_t tokens, samples;
	const json_t *weight = json_object_get(s, "weight");
	if (!json_is_string(json_object_get(s, "path")) || !json_is_number(weight) ||
	    !(json_number_value(weight) > 0))
		return err_set(e, ERR_CORRUPT, "a source without path or weight");
	return json_member_int64(s, "tokens", 0, INT64_MAX, &tokens, e) ||
			       json_member_int64(s, "samples", 1, INT64_MAX, &samples, e)
		       ? -1
		       : 0;
}

static int check_order(const json_t *o, struct err *e)
{
	int64_t seq;
	const json_t *validation = json_object_get(o, "validation"),
		     *sources = json_object_get(o, "sources");
	if (!json_is_string(json_object_get(o, "seed")) || !json_is_number(validation) ||
	    !(json_number_value(validation) >= 0) || !(json_number_value(validation) < 1))
		return err_set(e, ERR_CORRUPT, "\"order\" without seed or validation");
	size_t n = json_array_size(sources);
	if (n < 1 || n > LEDGER_SOURCES_MAX)
		return err_set(e, ERR_CORRUPT, "\"order\" has no sources, or too many");
	for (size_t i = 0; i < n; i++)
		if (check_source(json_array_get(sources, i), e))
			return -1;
	return json_member_int64(o, "seq", 1, INT32_MAX, &seq, e);
}

int data_ledger_sources(const json_t *order, struct blend_source *list, int64_t *tokens,
			int64_t *samples)
{
	const json_t *sources = json_object_get(order, "sources");
	int n = (int)json_array_size(sources);
	for (int i = 0; i < n; i++) {
		const json_t *s = json_array_get(sources, (size_t)i);
		list[i] = (struct blend_source){
			.path = (char *)json_string_value(json_object_get(s, "path")),
			.weight = json_number_value(json_object_get(s, "weight")),
		};
		if (tokens)
			tokens[i] = json_integer_value(json_object_get(s, "tokens"));
		if (samples)
			samples[i] = json_integer_value(json_object_get(s, "samples"));
	}
	return n;
}

static int get_start(const json_t *o, struct ledger_line *l, struct err *e)
{
	json_t *order = json_object_get(o, "order"), *layout = json_object_get(o, "layout");
	if (json_member_int64(o, "step", 0, step_most, &l->step, e) ||
	    json_member_int64(o, "samples", 0, RANGES_END / 2, &l->samples, e) ||
	    (json_member_given(json_object_get(o, "skipped")) &&
	     json_member_int64(o, "skipped", 0, RANGES_END / 2, &l->skipped, e)) ||
	    check_order(order, e))
		return -1;
	if (!json_is_object(layout))
		return err_set(e, ERR_CORRUPT, "\"layout\" is not an object");
	l->kind = LEDGER_START;
	l->order = json_incref(order);
	l->layout = json_incref(layout);
	return 0;
}

static int get_skip(const json_t *o, struct ledger_line *l, struct err *e)
{
	const char *reason = json_string_value(json_object_get(o, "reason"));
	if (json_member_int64(o, "first", 0, RANGES_END - 1, &l->first, e) ||
	    json_member_int64(o, "count", 1, RANGES_END - l->first, &l->count, e))
		return -1;
	l->kind = LEDGER_SKIP;
	l->reason = strdup(reason ? reason : "");
	return l->reason ? 0 : err_set(e, ERR_NOMEM, "no memory for a line");
}

static int get_replica(const json_t *v, int64_t global, struct ledger_replica *r, struct err *e)
{
	const json_t *offset = json_array_get(v, 0), *share = json_array_get(v, 1);
	const char *hex = json_string_value(json_array_get(v, 2));
	r->offset = json_integer_value(offset);
	r->share = json_integer_value(share);
	if (!json_is_integer(offset) || !json_is_integer(share) || r->offset < 0 || r->share < 0 ||
	    r->offset > global || r->share > global - r->offset || !hex ||
	    !ckpt_digest_parse(hex, &r->digest))
		return err_set(e, ERR_CORRUPT,
			       "a replica that is not [offset, share, digest] within the batch");
	return 0;
}

/* The pieces must have as many steps as the line. */
static int get_pieces(const json_t *list, struct ledger_line *l, struct err *e)
{
	int64_t left = l->to - l->from;
	size_t n = json_array_size(list);
	if (n < 1 || n > LEDGER_PIECES_MAX)
		return err_set(e, ERR_CORRUPT, "\"pieces\" is not a list, or is too long");
	l->pieces = calloc(n, sizeof *l->pieces);
	if (!l->pieces)
		return err_set(e, ERR_NOMEM, "no memory for %zu pieces", n);
	for (; l->n_pieces < (int)n; l->n_pieces++) {
		const json_t *v = json_array_get(list, (size_t)l->n_pieces);
		struct ledger_piece p = { json_integer_value(json_array_get(v, 0)),
					  json_integer_value(json_array_get(v, 1)) };
		if (p.steps < 1 || p.count < 1 || p.count > left / p.steps)
			return err_set(e, ERR_CORRUPT, "a piece that is not [steps, count]");
		left -= p.steps * p.count;
		l->pieces[l->n_pieces] = p;
	}
	return left ? err_set(e, ERR_CORRUPT, "\"pieces\" lacks steps of the line") : 0;
}

int64_t data_ledger_cut(const struct ledger_line *l, int64_t step)
{
	int64_t at = l->from;
	if (step >= l->to || step <= l->from)
		return step >= l->to ? l->to : l->from;
	for (int i = 0; i < l->n_pieces; i++) {
		const struct ledger_piece *p = &l->pieces[i];
		int64_t whole = (step - at) / p->steps;
		if (whole < p->count)
			return at + whole * p->steps;
		at += p->count * p->steps;
	}
	return at;
}

static int get_steps(const json_t *o, struct ledger_line *l, struct err *e)
{
	const json_t *replicas = json_object_get(o, "replicas");
	size_t n = json_array_size(replicas);
	if (json_member_int64(o, "from", 0, step_most, &l->from, e) ||
	    json_member_int64(o, "to", l->from + 1, step_most, &l->to, e) ||
	    json_member_int64(o, "first", 0, RANGES_END, &l->first, e) ||
	    json_member_int64(o, "global", 1, GLOBAL_MAX, &l->global, e))
		return -1;
	l->kind = LEDGER_STEPS;
	l->whole = l->to;
	if (l->to - l->from > RANGES_END / l->global)
		return err_set(e, ERR_CORRUPT, "more samples than there can be");
	if (json_object_get(o, "pieces") && get_pieces(json_object_get(o, "pieces"), l, e))
		return -1;
	if (!json_is_array(replicas) || n > LEDGER_REPLICAS_MAX)
		return err_set(e, ERR_CORRUPT, "\"replicas\" is not a list, or is too long");
	l->replicas = calloc(n + 1, sizeof *l->replicas);
	if (!l->replicas)
		return err_set(e, ERR_NOMEM, "no memory for %zu replicas", n);
	for (; l->n < (int)n; l->n++)
		if (get_replica(json_array_get(replicas, (size_t)l->n), l->global,
				&l->replicas[l->n], e))
			return -1;
	return 0;
}

static int get_line(const json_t *o, struct ledger_line *l, struct err *e)
{
	static const struct {
		const char *event;
		int (*get)(const json_t *o, struct ledger_line *l, struct err *e);
	} kinds[] = { { "start", get_start }, { "skip", get_skip }, { "steps", get_steps } };
	const char *event = json_string_value(json_object_get(o, "event"));
	if (!event && json_object_get(o, "format"))
		return get_head(o, l, e);
	for (size_t i = 0; event && i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(event, kinds[i].event))
			return json_member_int64(o, "generation", 0, UINT32_MAX, &l->generation,
						 e) ||
					       kinds[i].get(o, l, e)
				       ? -1
				       : 0;
	return err_set(e, ERR_CORRUPT, "\"event\" is neither start nor skip nor steps");
}

int data_ledger_parse(const char *text, size_t size, struct ledger_line *out, struct err *e)
{
	struct ledger_line l = { 0 };
	json_error_t why;
	json_t *o = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
	int rc = o ? get_line(o, &l, e) : err_set(e, ERR_CORRUPT, "no JSON object: %s", why.text);
	json_decref(o);
	if (rc) {
		data_ledger_line_fini(&l);
		return -1;
	}
	*out = l;
	return 0;
}

void data_ledger_line_fini(struct ledger_line *l)
{
	json_decref(l->order);
	json_decref(l->layout);
	free(l->reason);
	free(l->replicas);
	free(l->pieces);
	*l = (struct ledger_line){ 0 };
}

void data_ledger_chain(struct digest *chain, const struct digest *next)
{
	struct digest pair[2] = { *chain, *next };
	*chain = ckpt_digest_of(pair, sizeof pair);
}
