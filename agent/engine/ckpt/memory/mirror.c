#include "agent/engine/ckpt/memory/mirror.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/save/commit.h"
#include "base/log.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>

/* A copy that this rank keeps for another one. */
struct charge {
	int owner;
	int64_t text_bytes; /* of its manifest */
	char *text, *image;
	size_t bytes;
};

struct ckpt_mirror {
	struct comm *group;
	struct ckpt_store *store;
	const struct ckpt_gate *gate;
	uint32_t generation;
	int keeper; /* of this rank's copy; negative: none */
	struct charge *charges;
	int n_charges;
	struct comm_p2p *ops;
	struct buf text; /* of the manifest of this rank's shard */

	pthread_t thread;
	bool joinable;
	atomic_bool busy, cancel;
	int64_t step;
	int rc; /* of the take */
	struct err why;
	int64_t number;
	bool failing; /* the last copy has failed; it was reported */
	/* A rank was lost: nobody knows which copies the others have completed, so that the images of
	 * the step before them must stay. */
	bool lost;
	struct mirror_result result;
};

double ckpt_mirror_memory(double bytes, int64_t copies)
{
	return 2 * bytes * (double)(1 + copies);
}

/* --- Opening --- */

static int set_charges(struct ckpt_mirror *m, const int *keeper, struct err *e)
{
	int rank = comm_rank(m->group), ranks = comm_size(m->group);
	m->keeper = keeper[rank];
	for (int r = 0; r < ranks; r++)
		m->n_charges += keeper[r] == rank;
	m->charges = calloc((size_t)m->n_charges + 1, sizeof *m->charges);
	m->ops = calloc((size_t)m->n_charges + 1, sizeof *m->ops);
	if (!m->charges || !m->ops)
		return err_set(e, ERR_NOMEM, "no memory to keep copies of other ranks");
	for (int r = 0, i = 0; r < ranks; r++)
		if (keeper[r] == rank)
			m->charges[i++].owner = r;
	return 0;
}

static int pair(struct ckpt_mirror *m, const struct pairing_place *places, bool peers,
		struct err *e)
{
	int ranks = comm_size(m->group);
	int *keeper = malloc((size_t)ranks * sizeof *keeper);
	int rc = keeper ? ckpt_pairing(places, ranks, keeper, e)
			: err_set(e, ERR_NOMEM, "no memory to pair %d ranks", ranks);
	for (int r = 0; r < ranks && !rc && !peers; r++)
		keeper[r] = PAIRING_ALONE;
	if (!rc)
		rc = set_charges(m, keeper, e);
	free(keeper);
	return rc;
}

static int prepare(struct ckpt_mirror *m, const struct ckpt_mirror_options *opt,
		   const struct pairing_place *places, struct err *e)
{
	const struct ckpt_store_options store = { .owners = comm_size(m->group),
						  .model = opt->model,
						  .layout = opt->layout,
						  .watch = opt->watch,
						  .cancel = &m->cancel };
	return pair(m, places, opt->peers, e) || ckpt_store_begin(m->store, &store, e) ? -1 : 0;
}

static int open_mirror(struct ckpt_mirror *m, const struct ckpt_mirror_options *opt, struct err *e)
{
	struct err mine = ERR_INIT;
	struct pairing_place *places = malloc((size_t)comm_size(m->group) * sizeof *places);
	int rc = places ? 0 : err_set(&mine, ERR_NOMEM, "no memory for the places of the ranks");
	rc = ckpt_agree_result(m->group, rc, &mine, e);
	if (!rc)
		rc = comm_all_gather(m->group, &opt->place, places, sizeof *places, COMM_U8, e);
	if (!rc)
		rc = ckpt_agree_result(m->group, prepare(m, opt, places, &mine), &mine, e);
	free(places);
	return rc;
}

int ckpt_mirror_open(struct comm *world, const struct ckpt_mirror_options *opt,
		     struct ckpt_mirror **out, struct err *e)
{
	struct ckpt_mirror *m = calloc(1, sizeof *m);
	if (!m) {
		comm_abort(world,
			   "no memory for copies in memory"); /* the others wait in the split */
		return err_set(e, ERR_NOMEM, "no memory for copies in memory");
	}
	*m = (struct ckpt_mirror){ .store = opt->store,
				   .gate = opt->gate,
				   .generation = opt->generation,
				   .text = BUF_INIT,
				   .result.step = -1 };
	if (comm_split(world, 0, comm_rank(world), "copies", &m->group, e) ||
	    open_mirror(m, opt, e)) {
		ckpt_mirror_close(m);
		return -1;
	}
	*out = m;
	return 0;
}

static void join_thread(struct ckpt_mirror *m)
{
	if (m->joinable)
		pthread_join(m->thread, NULL);
	m->joinable = false;
}

static void free_charges(struct ckpt_mirror *m)
{
	for (int i = 0; i < m->n_charges; i++) {
		free(m->charges[i].text);
		m->charges[i].text = NULL;
	}
}

void ckpt_mirror_close(struct ckpt_mirror *m)
{
	if (!m)
		return;
	atomic_store(&m->cancel, true);
	join_thread(m);
	comm_close(m->group);
	free_charges(m);
	free(m->charges);
	free(m->ops);
	buf_fini(&m->text);
	free(m);
}

/* --- The transfers --- */

/* What is sent to the keeper, and where the same of each charge goes. */
struct transfer {
	const void *own;
	size_t own_bytes;
	void *(*to)(struct charge *c);
	size_t (*bytes)(const struct charge *c);
};

static void *to_size(struct charge *c)
{
	return &c->text_bytes;
}

static size_t size_bytes(const struct charge *c)
{
	return sizeof c->text_bytes;
}

static void *to_text(struct charge *c)
{
	return c->text;
}

static size_t text_bytes(const struct charge *c)
{
	return (size_t)c->text_bytes;
}

static void *to_image(struct charge *c)
{
	return c->image;
}

static size_t image_bytes(const struct charge *c)
{
	return c->bytes;
}

static int transfer(struct ckpt_mirror *m, const struct transfer *t, struct err *e)
{
	int n = 0;
	if (m->keeper >= 0 && t->own_bytes)
		m->ops[n++] = (struct comm_p2p){ .send = true,
						 .source = t->own,
						 .count = t->own_bytes,
						 .type = COMM_U8,
						 .peer = m->keeper };
	for (int i = 0; i < m->n_charges; i++)
		if (t->bytes(&m->charges[i]))
			m->ops[n++] = (struct comm_p2p){ .data = t->to(&m->charges[i]),
							 .count = t->bytes(&m->charges[i]),
							 .type = COMM_U8,
							 .peer = m->charges[i].owner };
	return n ? comm_batch_send_recv(m->group, m->ops, n, e) : 0;
}

/* --- Behind training --- */

static int seal(struct ckpt_mirror *m, struct store_copy *own, struct err *e)
{
	int rank = comm_rank(m->group);
	if (m->rc)
		return err_set(e, m->why.code, "%s", m->why.text);
	/* before the seal: once all shards are complete, a run may continue from them */
	if (rank == 0 && m->gate && m->gate->pass(m->gate->arg, m->step, e))
		return -1;
	if (ckpt_store_seal(m->store, rank, e))
		return -1;
	if (!ckpt_store_find(m->store, rank, m->step, m->generation, own))
		return err_set(e, ERR_INTERNAL, "the copy of this rank's shard is gone");
	buf_clear(&m->text);
	ckpt_manifest_write(own->part, &m->text);
	return buf_failed(&m->text) ? err_set(e, ERR_NOMEM, "no memory for a copy's manifest") : 0;
}

static int alloc_texts(struct ckpt_mirror *m, struct err *e)
{
	for (int i = 0; i < m->n_charges; i++) {
		struct charge *c = &m->charges[i];
		c->text = c->text_bytes > 0 ? malloc((size_t)c->text_bytes) : NULL;
		if (!c->text)
			return err_set(e, ERR_NOMEM, "no memory for a copy's manifest");
	}
	return 0;
}

static int receive(struct ckpt_mirror *m, struct err *e)
{
	for (int i = 0; i < m->n_charges; i++) {
		struct charge *c = &m->charges[i];
		if (ckpt_store_receive(m->store, c->owner, c->text, (size_t)c->text_bytes,
				       &c->image, &c->bytes, e))
			return -1;
	}
	return 0;
}

static int check(struct ckpt_mirror *m, struct err *e)
{
	for (int i = 0; i < m->n_charges; i++)
		if (ckpt_store_check(m->store, m->charges[i].owner, e))
			return -1;
	return 0;
}

/* Each agreement precedes a transfer that needs what the step before it has made. */
static int copy(struct ckpt_mirror *m, int64_t *number, int *culprit, struct err *e)
{
	struct err mine = ERR_INIT;
	struct store_copy own = { 0 };
	if (ckpt_agree(m->group, seal(m, &own, &mine), &mine, culprit, e))
		return -1;
	int64_t size = (int64_t)m->text.len;
	const struct transfer sizes = { &size, sizeof size, to_size, size_bytes },
			      texts = { m->text.data, m->text.len, to_text, text_bytes },
			      images = { own.image,
					 own.part->n_files ? (size_t)own.part->files[0].size : 0,
					 to_image, image_bytes };
	if (transfer(m, &sizes, e) ||
	    ckpt_agree(m->group, alloc_texts(m, &mine), &mine, culprit, e) ||
	    transfer(m, &texts, e) || ckpt_agree(m->group, receive(m, &mine), &mine, culprit, e) ||
	    transfer(m, &images, e))
		return -1;
	return ckpt_agree_most(m->group, check(m, &mine), &mine, number, culprit, e);
}

static bool is_of(const void *arg, int64_t step, uint32_t generation)
{
	(void)step;
	return generation == *(const uint32_t *)arg;
}

/* One rank's warning is enough. */
static void report(struct ckpt_mirror *m, bool failed, int culprit, const struct err *e)
{
	if (failed && !m->failing && !m->lost)
		log_line(culprit == comm_rank(m->group) ? LOG_WARN : LOG_INFO,
			 "step %lld: there is no new copy in memory: %s; training goes on, and "
			 "the last copy stays valid",
			 (long long)m->step, e->text);
	else if (!failed && m->failing)
		log_line(comm_rank(m->group) ? LOG_DEBUG : LOG_INFO,
			 "step %lld: copies in memory work again", (long long)m->step);
	m->failing = failed;
}

static void *copy_thread(void *arg)
{
	struct ckpt_mirror *m = arg;
	struct err e = ERR_INIT;
	int culprit = -1;
	int64_t number = m->number;
	int rc = copy(m, &number, &culprit, &e);
	free_charges(m);
	m->lost = rc && (culprit < 0 || ckpt_group_is_lost(e.code));
	report(m, rc != 0, culprit, &e);
	if (rc && !m->lost)
		ckpt_store_drop(m->store, m->step, m->generation);
	if (!rc && m->result.step < 0) /* those of earlier generations are not needed any more */
		ckpt_store_retain(m->store, is_of, &m->generation);
	if (!rc)
		m->result = (struct mirror_result){ m->step, number };
	atomic_store(&m->busy, false);
	return NULL;
}

bool ckpt_mirror_busy(const struct ckpt_mirror *m)
{
	return atomic_load(&m->busy);
}

void ckpt_mirror_take(struct ckpt_mirror *m, const struct ckpt_state *state,
		      const struct ckpt_tensor *tensors, int n)
{
	join_thread(m);
	if (m->lost)
		return;
	m->step = state->step;
	m->why = (struct err)ERR_INIT;
	m->rc = ckpt_store_take(m->store, comm_rank(m->group), state, m->generation, tensors, n,
				&m->why);
}

/* As in the writer: without a thread the copy is made here. */
void ckpt_mirror_start(struct ckpt_mirror *m, int64_t number)
{
	if (m->lost)
		return;
	m->number = number;
	atomic_store(&m->busy, true);
	m->joinable = thread_start(&m->thread, "copies", copy_thread, m) == 0;
	if (!m->joinable)
		copy_thread(m);
}

const struct mirror_result *ckpt_mirror_result(const struct ckpt_mirror *m)
{
	return &m->result;
}
