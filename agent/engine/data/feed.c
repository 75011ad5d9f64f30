#include "agent/engine/data/feed.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct slot {
	int32_t *tokens; /* inputs, targets, starts: [share, seq] each */
	struct digest digest;
	int rc;
	struct err err;
};

struct feed {
	struct feed_options o;
	int64_t seq;
	struct slot *slots; /* step s is in slot s % n */
	int64_t n;
	struct digester *digester;
	int64_t taken; /* steps returned so far; only the caller uses it */

	bool threaded;
	pthread_t thread;
	pthread_mutex_t lock; /* protects filled and freed */
	pthread_cond_t change;
	int64_t filled, freed; /* steps read, steps whose slot is free again */
	atomic_bool closing, waiting;
};

static int64_t plane(const struct feed *f)
{
	return f->o.share * f->seq;
}

static void digest_sample(struct digester *d, int64_t position, const int32_t *inputs,
			  const int32_t *targets, int64_t seq)
{
	uint64_t le = htole64((uint64_t)position);
	ckpt_digester_add(d, &le, sizeof le);
	ckpt_digester_add(d, inputs, (size_t)seq * sizeof *inputs);
	ckpt_digester_add(d, targets, (size_t)seq * sizeof *targets);
}

/* Reads the share of a step sample by sample, so that data_feed_close need not wait for all of it.
 */
static void read_step(struct feed *f, int64_t step)
{
	struct slot *s = &f->slots[step % f->n];
	int32_t *inputs = s->tokens, *targets = inputs + plane(f),
		*starts = f->o.starts ? targets + plane(f) : NULL;
	int64_t before = step * f->o.global + f->o.offset;
	s->rc = 0;
	ckpt_digester_start(f->digester);
	for (int64_t i = 0; i < f->o.share && !s->rc && !atomic_load(&f->closing); i++) {
		int64_t at = i * f->seq,
			position = ranges_skip(f->o.skips, f->o.position, before + i);
		s->rc = dataset_read(f->o.data, f->o.split, f->o.seed, position, 1, f->o.vocab,
				     inputs + at, targets + at, starts ? starts + at : NULL,
				     &s->err);
		if (!s->rc)
			digest_sample(f->digester, position, inputs + at, targets + at, f->seq);
		if (f->o.moved && atomic_load(&f->waiting))
			f->o.moved(f->o.moved_arg);
	}
	s->digest = ckpt_digester_end(f->digester);
}

static void *read_ahead(void *arg)
{
	struct feed *f = arg;
	pthread_mutex_lock(&f->lock);
	for (int64_t step = 0; step < f->o.steps && !atomic_load(&f->closing);) {
		if (step - f->freed == f->n) {
			pthread_cond_wait(&f->change, &f->lock);
			continue;
		}
		pthread_mutex_unlock(&f->lock);
		read_step(f, step);
		pthread_mutex_lock(&f->lock);
		f->filled = ++step;
		pthread_cond_signal(&f->change);
		if (f->slots[(step - 1) % f->n].rc)
			break;
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

static int make_slots(struct feed *f, struct err *e)
{
	int64_t planes = f->o.starts ? 3 : 2;
	f->slots = calloc((size_t)f->n, sizeof *f->slots);
	f->digester = ckpt_digester_open();
	bool ok = f->slots && f->digester;
	for (int64_t i = 0; ok && i < f->n; i++)
		ok = (f->slots[i].tokens =
			      malloc((size_t)(planes * plane(f)) * sizeof *f->slots[i].tokens + 1));
	return ok ? 0
		  : err_set(e, ERR_NOMEM,
			    "data: no memory for %lld steps of %lld sequences; use a smaller "
			    "batch.global or "
			    "data.prefetch, or more dp",
			    (long long)f->n, (long long)f->o.share);
}

int data_feed_open(const struct feed_options *opt, struct feed **out, struct err *e)
{
	struct feed *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "data: no memory to read ahead");
	f->o = *opt;
	f->seq = dataset_seq(opt->data);
	f->n = opt->ahead < opt->steps ? opt->ahead + 1 : opt->steps > 0 ? opt->steps : 1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->change, NULL);
	if (make_slots(f, e))
		goto fail;
	if (opt->ahead > 0 && pthread_create(&f->thread, NULL, read_ahead, f)) {
		err_set(e, ERR_NOMEM,
			"data: cannot start the thread that reads ahead; raise ulimit -u, or set "
			"data.prefetch = 0");
		goto fail;
	}
	f->threaded = opt->ahead > 0;
	*out = f;
	return 0;
fail:
	data_feed_close(f);
	return -1;
}

void data_feed_close(struct feed *f)
{
	if (!f)
		return;
	if (f->threaded) {
		pthread_mutex_lock(&f->lock);
		atomic_store(&f->closing, true);
		pthread_cond_signal(&f->change);
		pthread_mutex_unlock(&f->lock);
		pthread_join(f->thread, NULL);
	}
	for (int64_t i = 0; f->slots && i < f->n; i++)
		free(f->slots[i].tokens);
	free(f->slots);
	ckpt_digester_close(f->digester);
	pthread_cond_destroy(&f->change);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* Frees the slot that was returned before, and waits until step `taken` is read. */
static void await(struct feed *f)
{
	atomic_store(&f->waiting, true);
	if (f->threaded) {
		pthread_mutex_lock(&f->lock);
		f->freed = f->taken;
		pthread_cond_signal(&f->change);
		while (f->filled <= f->taken)
			pthread_cond_wait(&f->change, &f->lock);
		pthread_mutex_unlock(&f->lock);
	} else {
		read_step(f, f->taken);
	}
	atomic_store(&f->waiting, false);
}

int data_feed_next(struct feed *f, struct feed_batch *out, struct err *e)
{
	if (f->taken == f->o.steps)
		return err_set(e, ERR_INTERNAL,
			       "data: more than the %lld steps that were requested",
			       (long long)f->o.steps);
	await(f);
	const struct slot *s = &f->slots[f->taken % f->n];
	if (s->rc) {
		if (e)
			*e = s->err;
		return -1;
	}
	int64_t before = f->taken * f->o.global + f->o.offset;
	*out = (struct feed_batch){
		.inputs = s->tokens,
		.targets = s->tokens + plane(f),
		.starts = f->o.starts ? s->tokens + 2 * plane(f) : NULL,
		.position = ranges_skip(f->o.skips, f->o.position, before),
		.sample = f->o.position - f->o.skipped + before,
		.count = f->o.share,
		.digest = s->digest,
	};
	f->taken++;
	return 0;
}

int data_feed_digest(const struct dataset *data, enum data_split split, uint64_t seed,
		     int64_t vocab, const struct feed_share *share, int32_t *tokens,
		     struct digest *out, struct err *e)
{
	int64_t seq = dataset_seq(data);
	struct digester *d = ckpt_digester_open();
	if (!d)
		return err_set(e, ERR_NOMEM, "data: no memory for a digest");
	int rc = 0;
	ckpt_digester_start(d);
	for (int64_t i = 0; i < share->count && !rc; i++) {
		int64_t position = ranges_skip(share->skips, share->position, share->before + i);
		rc = dataset_read(data, split, seed, position, 1, vocab, tokens, tokens + seq, NULL,
				  e);
		if (!rc)
			digest_sample(d, position, tokens, tokens + seq, seq);
	}
	*out = ckpt_digester_end(d);
	ckpt_digester_close(d);
	return rc;
}
