#include "agent/engine/train/samples.h"

#include "agent/engine/data/feed.h"
#include "agent/engine/data/ledger.h"
#include "base/log.h"

#include <stdlib.h>

struct samples {
	struct samples_options o;
	struct dataset *data;
	struct feed *feed;
	struct ledger *ledger;
	struct digest digest; /* digest of the share of the current step */
};

int train_samples_open(const struct samples_options *opt, struct samples **out, struct err *e)
{
	const struct job *job = opt->view->job;
	struct samples *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "data: no memory for the samples");
	s->o = *opt;
	if (dataset_open(job->data.path, job->model.seq, job->data.validation, &s->data, e)) {
		train_samples_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

void train_samples_close(struct samples *s)
{
	if (!s)
		return;
	data_feed_close(s->feed);
	data_ledger_close(s->ledger);
	dataset_close(s->data);
	free(s);
}

const struct dataset *train_samples_data(const struct samples *s)
{
	return s->data;
}

/* Reports progress, so that a slow disk is not taken for a hang. */
static void on_sample(void *arg)
{
	struct samples *s = arg;
	s->o.hooks->moved(s->o.hooks->arg);
}

static int open_feed(struct samples *s, enum data_split split, int64_t position, int64_t steps,
		     struct feed **out, struct err *e)
{
	const struct job *job = s->o.view->job;
	struct feed_options o = {
		.data = s->data,
		.split = split,
		.seed = job->job.seed,
		.vocab = job->model.vocab,
		.position = position,
		.global = job->batch.global,
		.offset = s->o.view->batch.first,
		.share = s->o.view->sequences,
		.steps = steps,
		.ahead = job->data.prefetch,
		.starts = job->data.documents == DOCUMENTS_MASK,
		.moved = on_sample,
		.moved_arg = s,
	};
	return data_feed_open(&o, out, e);
}

int train_samples_begin(struct samples *s, int64_t step, int64_t consumed, json_t *layout,
			struct err *e)
{
	const struct job *job = s->o.view->job;
	struct ledger_options o = {
		.world = s->o.world,
		.dir = s->o.run_dir,
		.generation = s->o.generation,
		.step = step,
		.samples = consumed,
		.data = s->data,
		.seed = job->job.seed,
		.layout = layout,
		.replica = s->o.view->at.dp,
		.offset = s->o.view->batch.first,
		.share = s->o.view->sequences,
		.global = job->batch.global,
	};
	int64_t left = job->job.steps - step;
	return open_feed(s, DATA_TRAIN, consumed, left > 0 ? left : 0, &s->feed, e) ||
			       data_ledger_open(&o, &s->ledger, e)
		       ? -1
		       : 0;
}

static struct engine_batch batch_of(const struct feed_batch *b)
{
	return (struct engine_batch){
		.inputs = b->inputs,
		.targets = b->targets,
		.starts = b->starts,
		.sample = b->position,
		.loss_scale = 1,
	};
}

int train_samples_next(struct samples *s, struct engine_batch *out, struct err *e)
{
	struct feed_batch b;
	if (data_feed_next(s->feed, &b, e))
		return -1;
	s->digest = b.digest;
	*out = batch_of(&b);
	return 0;
}

void train_samples_done(struct samples *s)
{
	data_ledger_add(s->ledger, &s->digest);
}

int train_samples_durable(struct samples *s, struct err *e)
{
	int rc = data_ledger_flush(s->ledger, e);
	const char *note = data_ledger_note(s->ledger);
	if (*note)
		log_warn("%s", note);
	return rc;
}

int train_samples_evaluate(struct samples *s, int64_t batches,
			   int (*fn)(const struct engine_batch *b, void *arg, struct err *e),
			   void *arg, struct err *e)
{
	struct feed *feed;
	int rc = open_feed(s, DATA_VALIDATION, 0, batches, &feed, e);
	if (rc)
		return -1;
	for (int64_t i = 0; i < batches && !rc; i++) {
		struct feed_batch b;
		rc = data_feed_next(feed, &b, e);
		struct engine_batch batch = rc ? (struct engine_batch){ 0 } : batch_of(&b);
		if (!rc)
			rc = fn(&batch, arg, e);
	}
	data_feed_close(feed);
	return rc;
}
