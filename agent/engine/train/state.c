#include "agent/engine/train/state.h"

#include "agent/engine/ckpt/carry.h"
#include "base/log.h"
#include "plan/spec/layout.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int train_state_dir(const struct job *job, const char *run_dir, char out[JOB_PATH], struct err *e)
{
	enum { NAME = 64 }; /* of a checkpoint in it */
	const char *own = job->checkpoint.dir;
	int n = own[0] ? snprintf(out, JOB_PATH, "%s", own)
		       : snprintf(out, JOB_PATH, "%s/ckpt", run_dir);
	if (n >= JOB_PATH - NAME)
		return err_set(e, ERR_USAGE,
			       "%s: the path of the checkpoints is too long; set checkpoint.dir to "
			       "a shorter one",
			       out);
	return 0;
}

/* What a checkpoint that proved damaged is called, in front of its own name. */
#define DAMAGED "damaged-"

/* A parameter's tensors: itself, and its states. */
enum { TENSORS_MOST = 1 + OPTIMIZER_STATES_MOST, BOXES_MOST = 3 };

/* Tensor 0 is the parameter, tensor i its state i - 1. false: it has no such tensor. */
static bool name_tensor(const struct param *p, enum job_optimizer kind, int tensor,
			struct ckpt_tensor *t)
{
	*t = (struct ckpt_tensor){ .dims = p->dims,
				   .shape = { p->shape[0], p->shape[1] },
				   .moment = tensor > 0 };
	if (tensor == 0)
		snprintf(t->name, sizeof t->name, "%s", p->name);
	else if (optimizer_state_shape(kind, tensor - 1, p, t->shape, &t->dims))
		snprintf(t->name, sizeof t->name, "optim.%s.%s",
			 optimizer_of(kind)->states[tensor - 1].name, p->name);
	else
		return false;
	return true;
}

/* A growing list of boxes; room was made for the most there can be. */
struct boxes {
	struct ckpt_tensor *list;
	int n;
};

/* Elements [first, first + count) of the parameter's row-major box as boxes of `like`: the rest
 * of a row, whole rows, the begin of one. */
static void add_run(struct boxes *b, const struct ckpt_tensor *like, const struct param *p,
		    int64_t first, int64_t count, float *data)
{
	int64_t width = p->hi[1] - p->lo[1];
	while (count > 0) {
		int64_t row = first / width, column = first % width;
		bool rows = column == 0 && count >= width;
		int64_t high = rows ? count / width : 1, wide = rows ? width
								: width - column < count
									? width - column
									: count;
		struct ckpt_tensor *t = &b->list[b->n++];
		*t = *like;
		t->lo[0] = p->lo[0] + row;
		t->hi[0] = t->lo[0] + high;
		t->lo[1] = p->lo[1] + column;
		t->hi[1] = t->lo[1] + wide;
		t->data = data;
		first += high * wide;
		count -= high * wide;
		data += high * wide;
	}
}

/* The whole of a tensor. */
static void add_whole(struct boxes *b, const struct ckpt_tensor *like, float *data)
{
	struct ckpt_tensor *t = &b->list[b->n++];
	*t = *like;
	for (int d = 0; d < 2; d++) {
		t->lo[d] = 0;
		t->hi[d] = t->shape[d];
	}
	t->data = data;
}

/* Elements [lo, hi) of the piece, of all its tensors. there: those that are not the host's. */
static void add_piece(struct boxes *b, const struct state_view *view,
		      const struct ckpt_memory *there, const struct param_piece *piece, int64_t lo,
		      int64_t hi)
{
	enum job_optimizer kind = optim_kind(view->optim);
	for (int i = 0; i < TENSORS_MOST; i++) {
		struct ckpt_tensor like;
		float *at = train_state_at(view, piece, i);
		if (!at || !name_tensor(piece->param, kind, i, &like))
			continue;
		like.there = train_state_on_host(view, i) ? NULL : there;
		add_run(b, &like, piece->param, piece->first + lo, hi - lo, at + lo);
	}
}

/* States that every rank with a part of the parameter holds whole. */
static void add_factors(struct boxes *b, const struct state_view *view, const struct param *p)
{
	enum job_optimizer kind = optim_kind(view->optim);
	for (int i = 0; i < OPTIMIZER_STATES_MOST; i++) {
		struct ckpt_tensor like;
		float *at = optim_factor(view->optim, i, p);
		if (at && name_tensor(p, kind, i + 1, &like))
			add_whole(b, &like, at);
	}
}

/* --- Tensors in a device's memory --------------------------------------------------- */

static int get(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	return backend_get(arg, to, from, bytes, e);
}

static int put(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	(void)e;
	backend_put(arg, to, from, bytes);
	return 0;
}

static void *take(void *arg, size_t bytes)
{
	return backend_host_alloc(arg, bytes);
}

static void give_back(void *arg, void *p)
{
	backend_host_free(arg, p);
}

static struct ckpt_memory memory_of(const struct state_view *view)
{
	return (struct ckpt_memory){ .get = get,
				     .put = put,
				     .take = take,
				     .give_back = give_back,
				     .arg = param_store_backend(view->store) };
}

/* The boxes of all pieces, or of what this rank counts of them. The list is to be freed. */
static int list_boxes(const struct state_view *view, const struct ckpt_memory *there, bool counted,
		      struct boxes *out, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(view->store, &n);
	const struct catalogue *c = param_store_catalogue(view->store);
	size_t most = (size_t)n * TENSORS_MOST * BOXES_MOST + (size_t)c->n * OPTIMIZER_STATES_MOST;
	struct boxes b = { calloc(most + 1, sizeof *b.list), 0 };
	if (!b.list)
		return err_set(e, ERR_NOMEM, "checkpoint: no memory for a list of %d pieces", n);
	for (int i = 0; i < n; i++)
		add_piece(&b, view, there, &pieces[i], counted ? pieces[i].count_lo : 0,
			  counted ? pieces[i].count_hi : pieces[i].count);
	for (int i = 0; i < c->n; i++)
		if (!counted || param_store_saves(view->store, &c->params[i]))
			add_factors(&b, view, &c->params[i]);
	*out = b;
	return 0;
}

int train_state_whole(const struct model_shape *s, enum job_optimizer kind,
		      struct ckpt_tensor **list, int *n, struct err *e)
{
	const struct stage all = {
		.layer_lo = 0, .layer_hi = (int)s->layers, .first = true, .last = true
	};
	const struct share share = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	struct catalogue c;
	if (catalogue_build(s, &share, &c, e))
		return -1;
	struct boxes b = { calloc((size_t)c.n * TENSORS_MOST + 1, sizeof *b.list), 0 };
	for (int i = 0; b.list && i < c.n; i++)
		for (int j = 0; j < TENSORS_MOST; j++) {
			struct ckpt_tensor like;
			if (name_tensor(&c.params[i], kind, j, &like))
				add_whole(&b, &like, NULL);
		}
	catalogue_free(&c);
	if (!b.list)
		return err_set(e, ERR_NOMEM, "checkpoint: no memory for a list of all tensors");
	*list = b.list;
	*n = b.n;
	return 0;
}

/* Checkpoints from before there were several are AdamW's. */
static int check_optimizer(const char *path, const struct ckpt_state *at, enum job_optimizer kind,
			   struct err *e)
{
	const char *has = at->optimizer[0] ? at->optimizer : optimizer_of(OPTIMIZER_ADAMW)->name;
	if (!strcmp(has, optimizer_of(kind)->name) ||
	    (at->step == 0 && !strcmp(has, CKPT_NO_OPTIMIZER)))
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: it holds the moments of %s, the job says optimizer.kind = %s; set it "
		       "back, or begin a run of its own "
		       "from exported weights",
		       path, has, optimizer_of(kind)->name);
}

/* What an attempt before this one has read goes. */
static int load_carried(const char *path, struct carry *c, struct err *e)
{
	struct manifest m;
	ckpt_carry_fini(c);
	if (ckpt_manifest_load(path, &m, e))
		return -1;
	int rc = ckpt_carry_load(path, &m, c, e);
	ckpt_manifest_fini(&m);
	return rc;
}

static int load(const char *path, json_t *model, const struct state_view *view,
		struct ckpt_state *at, struct err *e)
{
	enum job_optimizer kind = optim_kind(view->optim);
	struct ckpt_state s, other;
	struct boxes b;
	struct ckpt_memory there = memory_of(view);
	if (list_boxes(view, &there, false, &b, e))
		return -1;
	int rc = ckpt_load(path, model, &s, b.list, b.n, view->watch, e);
	free(b.list);
	if (!rc)
		rc = check_optimizer(path, &s, kind, e);
	else if (e->code == ERR_USAGE && !ckpt_load(path, model, &other, NULL, 0, NULL, NULL))
		check_optimizer(path, &other, kind, e); /* then this is why a tensor is missing */
	if (!rc && view->carry)
		rc = load_carried(path, view->carry, e);
	if (!rc)
		*at = s;
	return rc;
}

int train_state_save(struct ckpt_writer *w, const struct ckpt_state *at,
		     const struct state_view *view, struct err *e)
{
	struct ckpt_state s = *at;
	struct boxes b;
	struct ckpt_memory there = memory_of(view);
	if (optim_wait(view->optim, e) || list_boxes(view, &there, true, &b, e))
		return -1;
	snprintf(s.optimizer, sizeof s.optimizer, "%s",
		 optimizer_of(optim_kind(view->optim))->name);
	int rc = ckpt_save(w, &s, b.list, b.n, e);
	free(b.list);
	return rc;
}

static void warn(const char *text, void *arg)
{
	(void)arg;
	log_warn("%s", text);
}

/* The worst of the ranks' error codes (ERR_NONE: all is well), and the first rank that has it. */
struct verdict {
	enum err_code code;
	int rank;
};

static int agree(struct comm *world, int rc, const struct err *mine, struct verdict *all,
		 struct err *e)
{
	int size = comm_size(world);
	int64_t word = (rc ? (int64_t)mine->code : ERR_NONE) * size + size - 1 - comm_rank(world);
	if (comm_all_reduce(world, &word, &word, 1, COMM_I64, COMM_MAX, e))
		return -1;
	*all = (struct verdict){ (enum err_code)(word / size), size - 1 - (int)(word % size) };
	return 0;
}

/* The error that this rank returns: its own, or that another one has failed. */
static int share_failure(int rc, const struct err *mine, const struct verdict *all,
			 const char *what, struct err *e)
{
	if (rc)
		return err_set(e, mine->code, "%s", mine->text);
	return err_set(e, ERR_PEER, "%s: rank %d failed (%s)", what, all->rank,
		       err_word(all->code));
}

/* Whether the checkpoint `path` lies in the folder `dir`. */
static bool lies_in(const char *path, const char *dir)
{
	char up[JOB_PATH + 4], *parent, *own;
	snprintf(up, sizeof up, "%s/..", path);
	parent = realpath(up, NULL);
	own = realpath(dir, NULL);
	bool same = parent && own && !strcmp(parent, own);
	free(parent);
	free(own);
	return same;
}

static bool same_folder(const char *a, const char *b)
{
	struct stat x, y;
	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool holds_damaged(const char *dir)
{
	bool found = false;
	DIR *d = opendir(dir);
	for (struct dirent *f; d && !found && (f = readdir(d));)
		found = !strncmp(f->d_name, DAMAGED, strlen(DAMAGED));
	if (d)
		closedir(d);
	return found;
}

/* What the run has written itself comes before what the job names, so that the same command goes on
 * after a stop; nothing is ever trained past a newer checkpoint, which the next restart would take
 * for this run's. */
static int weigh(const char *wish, const char *dir, const char *newest, const char **chosen,
		 struct err *e)
{
	bool named = strcmp(wish, "none") && strcmp(wish, "auto");
	if (newest && !strcmp(wish, "none"))
		return err_set(e, ERR_USAGE,
			       "checkpoint.resume = none, and the run has a checkpoint already, "
			       "%s; drop the word to go on "
			       "from it, or start anew under another job.name",
			       newest);
	if (newest && named && lies_in(wish, dir) && !same_folder(wish, newest))
		return err_set(e, ERR_USAGE,
			       "checkpoint.resume = %s, and the run has a newer one, %s; move the "
			       "newer ones away, "
			       "or go on from there under another job.name",
			       wish, newest);
	if (!newest && holds_damaged(dir))
		return err_set(e, ERR_CORRUPT,
			       "%s: every checkpoint of the run proved damaged (%s…); mend one and "
			       "take the word off its name, "
			       "or move them away to start anew",
			       dir, DAMAGED);
	*chosen = newest ? newest : named ? wish : "";
	if (newest && named && !same_folder(wish, newest))
		log_info("going on from %s, which this run has written; checkpoint.resume = %s was "
			 "for its beginning",
			 newest, wish);
	return 0;
}

/* World rank 0 looks, because one rank must decide what exists; all get the path ("" when there
 * is none). */
static int choose(struct comm *world, const char *wish, const char *dir, json_t *model,
		  char path[JOB_PATH], struct err *e)
{
	struct err mine = ERR_INIT;
	struct verdict all;
	int rc = 0;
	memset(path, 0, JOB_PATH);
	if (comm_rank(world) == 0) {
		char *newest = NULL;
		const char *chosen = "";
		rc = ckpt_latest(dir, model, &newest, warn, NULL, &mine) ||
				     weigh(wish, dir, newest, &chosen, &mine)
			     ? -1
			     : 0;
		snprintf(path, JOB_PATH, "%s", chosen);
		free(newest);
	}
	if (agree(world, rc, &mine, &all, e))
		return -1;
	if (all.code != ERR_NONE)
		return share_failure(rc, &mine, &all, dir, e);
	return comm_broadcast(world, path, JOB_PATH, COMM_U8, 0, e);
}

/* Out of the way of the next search, but not lost. */
static int set_aside(const char *path, struct err *e)
{
	const char *slash = strrchr(path, '/');
	int head = slash ? (int)(slash + 1 - path) : 0;
	char to[JOB_PATH + 32];
	for (int i = 0; i < 100; i++) {
		snprintf(to, sizeof to, i ? "%.*s%s%s.%d" : "%.*s%s%s", head, path, DAMAGED,
			 path + head, i);
		if (!rename(path, to)) {
			log_warn("%s: damaged; it is now %s and the checkpoint before it is used",
				 path, to);
			return 0;
		}
		if (errno != ENOTEMPTY && errno != EEXIST)
			break;
	}
	return err_errno(e, ERR_IO, "%s: damaged, and cannot be renamed to %s", path, to);
}

/* 1 when all ranks have loaded it, 0 when some found it damaged (e says so). */
static int try_load(struct comm *world, const char *path, json_t *model,
		    const struct state_view *view, struct ckpt_state *at, struct err *e)
{
	struct err mine = ERR_INIT;
	struct verdict all;
	int rc = load(path, model, view, at, &mine);
	if (agree(world, rc, &mine, &all, e))
		return -1;
	if (all.code == ERR_NONE)
		return 1;
	if (rc) /* the supervisor hears of it once */
		log_line(all.rank == comm_rank(world) && all.code == ERR_CORRUPT ? LOG_WARN
										 : LOG_INFO,
			 "%s", mine.text);
	share_failure(rc, &mine, &all, path, e);
	return all.code == ERR_CORRUPT ? 0 : -1;
}

int train_state_resume(struct comm *world, const char *wish, const char *dir, json_t *model,
		       const struct state_view *view, struct ckpt_state *at, struct err *e)
{
	for (;;) {
		char path[JOB_PATH];
		if (choose(world, *wish ? wish : "none", dir, model, path, e))
			return -1;
		if (!path[0])
			return 0;
		int rc = try_load(world, path, model, view, at, e);
		if (rc == 1)
			return param_store_publish(view->store, at->step, e) ? -1 : 1;
		if (rc || !strcmp(path, wish))
			return -1;
		struct err mine = ERR_INIT;
		struct verdict all;
		/* what a failed attempt has read must not stay: moments begin at zero */
		train_state_clear(view);
		rc = comm_rank(world) == 0 ? set_aside(path, &mine) : 0;
		if (agree(world, rc, &mine, &all, e))
			return -1;
		if (all.code != ERR_NONE)
			return share_failure(rc, &mine, &all, path, e);
	}
}
