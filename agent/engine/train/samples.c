#include "agent/engine/train/samples.h"

#include "agent/engine/data/feed.h"
#include "agent/engine/data/ledger.h"
#include "base/log.h"
#include "base/messages.h"

#include <stdlib.h>

struct samples {
	struct samples_options o;
	struct dataset *data;
	struct feed *feed;
	struct ledger *ledger;
	struct ledger_skip *list; /* what the run skips, with the reasons */
	int n_list;
	struct ranges skips; /* the same as a set */
	struct samples_place begun;
	struct digest digest; /* digest of the share of the current step */
};

static int add_skip(struct samples *s, int64_t first, int64_t count, const char *reason,
		    struct err *e)
{
	struct ledger_skip *list = realloc(s->list, (size_t)(s->n_list + 1) * sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "data: no memory for what is skipped");
	s->list = list;
	list[s->n_list++] =
		(struct ledger_skip){ .first = first, .count = count, .reason = reason };
	return ranges_add(&s->skips, first, count, e);
}

/* Rollbacks come first, because an audit names the first range that explains a skipped sample. */
static int read_skips(struct samples *s, struct err *e)
{
	struct ranges job;
	for (size_t i = 0; i < json_array_size(s->o.skips); i++) {
		struct msg_skip m;
		if (msg_skip_read(json_array_get(s->o.skips, i), &m, e) ||
		    add_skip(s, m.first, m.count, m.reason, e))
			return err_prefix(e, "the samples that rollbacks skip");
	}
	if (ranges_parse(s->o.view->job->data.skip, &job, e))
		return err_prefix(e, "data.skip");
	for (int i = 0; i < job.n; i++)
		if (add_skip(s, job.list[i].first, job.list[i].end - job.list[i].first, "data.skip",
			     e))
			return err_prefix(e, "data.skip");
	return 0;
}

int train_samples_open(const struct samples_options *opt, struct samples **out, struct err *e)
{
	const struct job *job = opt->view->job;
	struct samples *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "data: no memory for the samples");
	s->o = *opt;
	if (dataset_open(job->data.path, job->model.seq, job->data.validation, &s->data, e) ||
	    read_skips(s, e)) {
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
	free(s->list);
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

/* begun: where training continues; NULL: the validation split is read from its beginning. */
static int open_feed(struct samples *s, const struct samples_place *begun, int64_t steps,
		     struct feed **out, struct err *e)
{
	const struct job *job = s->o.view->job;
	struct feed_options o = {
		.data = s->data,
		.split = begun ? DATA_TRAIN : DATA_VALIDATION,
		.seed = job->job.seed,
		.vocab = job->model.vocab,
		.position = begun ? begun->consumed + begun->skipped : 0,
		.skipped = begun ? begun->skipped : 0,
		.skips = begun ? &s->skips : NULL,
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

int train_samples_begin(struct samples *s, const struct samples_place *at, json_t *layout,
			struct err *e)
{
	const struct job *job = s->o.view->job;
	struct ledger_options o = {
		.world = s->o.world,
		.dir = s->o.run_dir,
		.generation = s->o.generation,
		.step = at->step,
		.samples = at->consumed,
		.skipped = at->skipped,
		.skips = s->list,
		.n_skips = s->n_list,
		.data = s->data,
		.seed = job->job.seed,
		.layout = layout,
		.replica = s->o.view->at.dp,
		.offset = s->o.view->batch.first,
		.share = s->o.view->sequences,
		.global = job->batch.global,
	};
	int64_t left = job->job.steps - at->step;
	s->begun = *at;
	return open_feed(s, at, left > 0 ? left : 0, &s->feed, e) ||
			       data_ledger_open(&o, &s->ledger, e)
		       ? -1
		       : 0;
}

/* The position after this step of the generation. */
static int64_t end_of(const struct samples *s, int64_t step)
{
	return ranges_end(&s->skips, s->begun.consumed + s->begun.skipped,
			  (step - s->begun.step) * s->o.view->job->batch.global);
}

int64_t train_samples_skipped(const struct samples *s, int64_t step)
{
	return end_of(s, step) - s->begun.consumed -
	       (step - s->begun.step) * s->o.view->job->batch.global;
}

struct range train_samples_span(const struct samples *s, int64_t step, int64_t before)
{
	int64_t first = ranges_skip(&s->skips, end_of(s, step - 1), 0);
	return (struct range){ ranges_back(&s->skips, first, before * s->o.view->job->batch.global),
			       end_of(s, step) };
}

static struct engine_batch batch_of(const struct feed_batch *b)
{
	return (struct engine_batch){
		.inputs = b->inputs,
		.targets = b->targets,
		.starts = b->starts,
		.sample = b->sample,
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

static int flush(struct samples *s, bool sync, struct err *e)
{
	int rc = data_ledger_flush(s->ledger, sync, e);
	const char *note = data_ledger_note(s->ledger);
	if (*note)
		log_warn("%s", note);
	return rc;
}

int train_samples_durable(struct samples *s, struct err *e)
{
	return flush(s, true, e);
}

int train_samples_written(struct samples *s, struct err *e)
{
	return flush(s, false, e);
}

int train_samples_sync(const struct samples *s, struct err *e)
{
	return data_ledger_sync(s->ledger, e);
}

int train_samples_evaluate(struct samples *s, int64_t batches,
			   int (*fn)(const struct engine_batch *b, void *arg, struct err *e),
			   void *arg, struct err *e)
{
	struct feed *feed;
	int rc = open_feed(s, NULL, batches, &feed, e);
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
