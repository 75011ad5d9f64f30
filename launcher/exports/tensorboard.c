#include "launcher/exports/tensorboard.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "launcher/exports/background.h"
#include "launcher/exports/export_ops.h"
#include "launcher/exports/hparams.h"
#include "launcher/exports/tfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCALARS = 32, QUEUE = 8 << 20 };
#define END_S 5.0

/* --- Records ------------------------------------------------------------------------ */

struct scalars {
	struct exports_scalar list[SCALARS];
	int n;
};

static void add(struct scalars *s, const char *tag, double value)
{
	if (s->n == SCALARS)
		return;
	struct exports_scalar *to = &s->list[s->n++];
	snprintf(to->tag, sizeof to->tag, "%s", tag);
	to->value = value;
}

static void add_known(struct scalars *s, const char *tag, bool known, double value)
{
	if (known)
		add(s, tag, value);
}

void exports_tb_step(struct buf *out, double time, const struct msg_metrics *m, double predicted_s)
{
	struct scalars s = { .n = 0 };
	add(&s, EXPORTS_TAG_LOSS, m->loss);
	add(&s, "train/grad_norm", m->grad_norm);
	add(&s, "train/lr", m->lr);
	add_known(&s, "train/cross_entropy", m->has_cross_entropy, m->cross_entropy);
	add_known(&s, "train/balance_loss", m->has_balance_loss, m->balance_loss);
	add_known(&s, "train/z_loss", m->has_z_loss, m->z_loss);
	add_known(&s, "train/loss_scale", m->has_loss_scale, m->loss_scale);
	add_known(&s, "speed/tokens_per_second", m->step_s > 0, (double)m->tokens / m->step_s);
	add(&s, "speed/step_seconds", m->step_s);
	add_known(&s, "speed/predicted_step_seconds", predicted_s > 0, predicted_s);
	add_known(&s, "memory/peak_bytes", m->peak_bytes > 0, (double)m->peak_bytes);
#define ADD_PART(with, ENUM, member, ...) add(&s, "step_parts/" #member, m->member##_s);
	STEP_PARTS(ADD_PART, )
#undef ADD_PART
	exports_tf_scalars(out, time, m->step, s.list, s.n);
}

void exports_tb_eval(struct buf *out, double time, int64_t step, double loss)
{
	struct scalars s = { .n = 0 };
	add(&s, EXPORTS_TAG_EVAL_LOSS, loss);
	exports_tf_scalars(out, time, step, s.list, s.n);
}

void exports_tb_checkpoint(struct buf *out, double time, int64_t step, double seconds,
			   double stall_s)
{
	struct scalars s = { .n = 0 };
	add(&s, "checkpoint/seconds", seconds);
	add(&s, "checkpoint/stall_seconds", stall_s);
	exports_tf_scalars(out, time, step, s.list, s.n);
}

/* TensorBoard reads the files of a folder in the order of their names, so these begin with the
 * time. */
int exports_tb_create(const char *folder, char path[RUN_PATH], int *fd, struct err *e)
{
	char host[64] = "";
	gethostname(host, sizeof host - 1);
	snprintf(path, RUN_PATH, "%s/events.out.tfevents.%.6f.%s.%ld", folder, clock_wall_s(),
		 *host ? host : "host", (long)getpid());
	*fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*fd < 0)
		return err_errno(e, file_error_code(errno), "%s: cannot create", path);
	return 0;
}

/* --- The file, in the thread that writes it ------------------------------------------- */

struct board_file {
	int fd;
	off_t size; /* of whole records */
	char path[RUN_PATH];
};

/* A record that is not written whole would hide those that follow. */
static int write_records(void *arg, const char *data, size_t n, struct err *e)
{
	struct board_file *f = arg;
	if (!file_write_full(f->fd, data, n)) {
		f->size += (off_t)n;
		return 0;
	}
	err_errno(e, file_error_code(errno),
		  "%s: cannot write; records are lost until there is room", f->path);
	if (ftruncate(f->fd, f->size) || lseek(f->fd, f->size, SEEK_SET) < 0)
		err_prefix(e, "the end of the file is damaged");
	return -1;
}

static void close_file(void *arg)
{
	struct board_file *f = arg;
	close(f->fd);
	free(f);
}

/* --- The export ------------------------------------------------------------------------ */

struct board {
	struct exports_background *file;
	bool begun;
	uint64_t texts; /* hash of the job and the plan that were written last */
};

/* Hands the records over and frees them. */
static void put(struct board *b, struct buf *records)
{
	if (!buf_failed(records))
		exports_background_put(b->file, records->data, records->len);
	buf_fini(records);
}

static bool is_wanted(const struct job *job)
{
	return job->metrics.tensorboard;
}

static int open_file(const char *run, struct board_file **out, struct err *e)
{
	char folder[RUN_PATH];
	struct board_file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "no memory for an event file");
	run_path(folder, run, RUN_TENSORBOARD);
	if (file_make_own_dir(folder, e) || exports_tb_create(folder, f->path, &f->fd, e)) {
		free(f);
		return -1;
	}
	*out = f;
	return 0;
}

static int board_open(const struct exports_options *o, void **x, struct err *e)
{
	struct board_file *file;
	struct buf first = BUF_INIT;
	struct board *b = calloc(1, sizeof *b);
	if (!b)
		return err_set(e, ERR_NOMEM, "no memory for TensorBoard's event file");
	if (open_file(o->run, &file, e) ||
	    exports_background_open(&(struct exports_background_options){ .write = write_records,
									  .close = close_file,
									  .arg = file,
									  .queue = QUEUE },
				    &b->file, e)) {
		free(b);
		return -1;
	}
	exports_tf_version(&first, clock_wall_s());
	put(b, &first);
	*x = b;
	return 0;
}

/* The resolved job, as the run folder has it, and the plan, unless both are those of the last
 * generation. */
static void put_texts(struct board *to, struct buf *out, double now, const struct export_begin *b)
{
	struct buf job = BUF_INIT;
	job_write(b->job, &job);
	uint64_t texts = hash_text(buf_str(&job)) ^ hash_text(b->plan);
	if (texts != to->texts) {
		exports_tf_text(out, now, b->step, "job", buf_str(&job));
		exports_tf_text(out, now, b->step, "plan", b->plan);
	}
	to->texts = texts;
	buf_fini(&job);
}

static void board_begin(void *x, const struct export_begin *b)
{
	struct board *board = x;
	struct buf out = BUF_INIT;
	double now = clock_wall_s();
	exports_tf_restart(&out, now, b->step + 1);
	if (!board->begun)
		exports_hparams_start(&out, now, b->job);
	put_texts(board, &out, now, b);
	board->begun = true;
	put(board, &out);
}

static void board_step(void *x, const struct msg_metrics *m, double predicted_s)
{
	struct buf out = BUF_INIT;
	exports_tb_step(&out, clock_wall_s(), m, predicted_s);
	put(x, &out);
}

static void board_eval(void *x, const struct msg_eval *m)
{
	struct buf out = BUF_INIT;
	exports_tb_eval(&out, clock_wall_s(), m->step, m->loss);
	put(x, &out);
}

static void board_checkpoint(void *x, const struct msg_ckpt *m)
{
	struct buf out = BUF_INIT;
	exports_tb_checkpoint(&out, clock_wall_s(), m->step, m->seconds, m->stall_s);
	put(x, &out);
}

static bool board_trouble(void *x, struct err *e)
{
	return exports_background_trouble(((struct board *)x)->file, e);
}

static enum exports_tf_status status_of(enum rundir_state_id state)
{
	if (state == RUNDIR_STATE_DONE)
		return TF_SUCCESS;
	return state == RUNDIR_STATE_FAILED || state == RUNDIR_STATE_GAVE_UP ? TF_FAILURE
									     : TF_UNKNOWN;
}

static void board_close(void *x, enum rundir_state_id state)
{
	struct board *b = x;
	struct buf out = BUF_INIT;
	if (b->begun) {
		exports_hparams_end(&out, clock_wall_s(), status_of(state));
		put(b, &out);
	}
	exports_background_close(b->file, END_S);
	free(b);
}

const struct export_ops exports_tensorboard = {
	.key = "metrics.tensorboard",
	.is_wanted = is_wanted,
	.open = board_open,
	.close = board_close,
	.trouble = board_trouble,
	.begin = board_begin,
	.step = board_step,
	.eval = board_eval,
	.checkpoint = board_checkpoint,
};
