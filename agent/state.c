#include "agent/state.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const families[] = { [FAMILY_GPT2] = "gpt2", [FAMILY_LLAMA] = "llama" };

json_t *state_model(const struct model_shape *s)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f}",
			 "family", families[s->family], "layers", (json_int_t)s->layers,
			 "hidden", (json_int_t)s->hidden, "heads", (json_int_t)s->heads,
			 "kv_heads", (json_int_t)s->kv_heads, "head_dim", (json_int_t)s->head_dim,
			 "ffn", (json_int_t)s->ffn, "vocab", (json_int_t)s->vocab, "seq", (json_int_t)s->seq,
			 "tied", s->tied, "norm_eps", s->norm_eps, "rope_theta", s->rope ? s->rope_theta : 0.0);
}

int state_dir(const struct job *job, const char *run_dir, char out[JOB_PATH], struct err *e)
{
	enum { NAME = 64 }; /* of a checkpoint in it */
	const char *own = job->checkpoint.dir;
	int n = own[0] ? snprintf(out, JOB_PATH, "%s", own) : snprintf(out, JOB_PATH, "%s/ckpt", run_dir);
	if (n >= JOB_PATH - NAME)
		return err_set(e, ERR_USAGE, "%s: the path of the checkpoints is too long; set checkpoint.dir to a shorter one", out);
	return 0;
}

/* What a checkpoint that proved damaged is called, in front of its own name. */
#define DAMAGED "damaged-"

/* The three tensors of a parameter: the name's prefix and where its numbers are. */
enum { KINDS = CATALOGUE_KINDS };
static const char *const prefixes[KINDS] = { "", "optim.m.", "optim.v." };

static void describe(const struct state_view *view, const struct param *p, int kind, struct ckpt_tensor *t)
{
	float *const buffers[KINDS] = { view->params, view->m, view->v };
	*t = (struct ckpt_tensor){ .dims = p->dims, .data = buffers[kind] ? buffers[kind] + p->offset : NULL };
	snprintf(t->name, sizeof t->name, "%s%s", prefixes[kind], p->name);
	memcpy(t->shape, p->shape, sizeof t->shape);
	memcpy(t->lo, p->lo, sizeof t->lo);
	memcpy(t->hi, p->hi, sizeof t->hi);
}

static bool mine_to_save(const struct param *p, int number, const struct layout *layout, const struct coords *me)
{
	return catalogue_saver(p, number, me->tp, layout->dp) == me->dp;
}

/* All boxes of the rank, or, with a layout, those it saves. The array is to be freed. */
static struct ckpt_tensor *list_tensors(const struct state_view *view, const struct layout *layout,
					const struct coords *me, int *n, struct err *e)
{
	const struct catalogue *c = view->catalogue;
	struct ckpt_tensor *list = calloc((size_t)c->n * KINDS + 1, sizeof *list);
	if (!list) {
		err_set(e, ERR_NOMEM, "checkpoint: no memory for a list of %d tensors", c->n * KINDS);
		return NULL;
	}
	*n = 0;
	for (int i = 0; i < c->n; i++)
		for (int kind = 0; kind < KINDS; kind++)
			if (!layout || mine_to_save(&c->params[i], i * KINDS + kind, layout, me))
				describe(view, &c->params[i], kind, &list[(*n)++]);
	return list;
}

int state_whole(const struct model_shape *s, struct ckpt_tensor **list, int *n, struct err *e)
{
	const struct stage all = { .layer_lo = 0, .layer_hi = (int)s->layers, .first = true, .last = true };
	const struct layout one = { 1, 1, 1 };
	const struct coords origin = { 0, 0, 0 };
	struct catalogue c;
	if (catalogue_build(s, 1, 0, &all, &c, e))
		return -1;
	struct ckpt_tensor *found = list_tensors(&(struct state_view){ .catalogue = &c }, &one, &origin, n, e);
	catalogue_free(&c);
	if (!found)
		return -1;
	*list = found;
	return 0;
}

static int load(const char *path, json_t *model, const struct state_view *view, struct ckpt_state *at, struct err *e)
{
	int n;
	struct ckpt_tensor *list = list_tensors(view, NULL, NULL, &n, e);
	if (!list)
		return -1;
	int rc = ckpt_load(path, model, at, list, n, view->watch, e);
	free(list);
	return rc;
}

int state_save(struct ckpt_writer *w, const struct ckpt_state *at, const struct state_view *view,
	       const struct layout *layout, const struct coords *me, struct err *e)
{
	int n;
	struct ckpt_tensor *list = list_tensors(view, layout, me, &n, e);
	if (!list)
		return -1;
	int rc = ckpt_save(w, at, list, n, e);
	free(list);
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

static int agree(struct comm *world, int rc, const struct err *mine, struct verdict *all, struct err *e)
{
	int size = comm_size(world);
	int64_t word = (rc ? (int64_t)mine->code : ERR_NONE) * size + size - 1 - comm_rank(world);
	if (comm_all_reduce(world, &word, &word, 1, COMM_I64, COMM_MAX, e))
		return -1;
	*all = (struct verdict){ (enum err_code)(word / size), size - 1 - (int)(word % size) };
	return 0;
}

/* The error that this rank returns: its own, or that another one has failed. */
static int share_failure(int rc, const struct err *mine, const struct verdict *all, const char *what, struct err *e)
{
	if (rc)
		return err_set(e, mine->code, "%s", mine->text);
	return err_set(e, ERR_PEER, "%s: rank %d failed (%s)", what, all->rank, err_word(all->code));
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

/* What the run has written itself comes before what the job names, so that the same command goes on after a stop; nothing
 * is ever trained past a newer checkpoint, which the next restart would take for this run's. */
static int weigh(const char *wish, const char *dir, const char *newest, const char **chosen, struct err *e)
{
	bool named = strcmp(wish, "none") && strcmp(wish, "auto");
	if (newest && !strcmp(wish, "none"))
		return err_set(e, ERR_USAGE, "checkpoint.resume = none, and the run has a checkpoint already, %s; drop the word to go on "
			       "from it, or start anew under another job.name", newest);
	if (newest && named && lies_in(wish, dir) && !same_folder(wish, newest))
		return err_set(e, ERR_USAGE, "checkpoint.resume = %s, and the run has a newer one, %s; move the newer ones away, "
			       "or go on from there under another job.name", wish, newest);
	if (!newest && holds_damaged(dir))
		return err_set(e, ERR_CORRUPT, "%s: every checkpoint of the run proved damaged (%s…); mend one and take the word off its name, "
			       "or move them away to start anew", dir, DAMAGED);
	*chosen = newest ? newest : named ? wish : "";
	if (newest && named && !same_folder(wish, newest))
		log_info("going on from %s, which this run has written; checkpoint.resume = %s was for its beginning", newest, wish);
	return 0;
}

/* World rank 0 looks, because one rank must decide what exists; all get the path ("" when there is none). */
static int choose(struct comm *world, const char *wish, const char *dir, json_t *model, char path[JOB_PATH], struct err *e)
{
	struct err mine = ERR_INIT;
	struct verdict all;
	int rc = 0;
	memset(path, 0, JOB_PATH);
	if (comm_rank(world) == 0) {
		char *newest = NULL;
		const char *chosen = "";
		rc = ckpt_latest(dir, model, &newest, warn, NULL, &mine) || weigh(wish, dir, newest, &chosen, &mine) ? -1 : 0;
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
		snprintf(to, sizeof to, i ? "%.*s%s%s.%d" : "%.*s%s%s", head, path, DAMAGED, path + head, i);
		if (!rename(path, to)) {
			log_warn("%s: damaged; it is now %s and the checkpoint before it is used", path, to);
			return 0;
		}
		if (errno != ENOTEMPTY && errno != EEXIST)
			break;
	}
	return err_errno(e, ERR_IO, "%s: damaged, and cannot be renamed to %s", path, to);
}

/* 1 when all ranks have loaded it, 0 when some found it damaged (e says so). */
static int try_load(struct comm *world, const char *path, json_t *model, const struct state_view *view,
		    struct ckpt_state *at, struct err *e)
{
	struct err mine = ERR_INIT;
	struct verdict all;
	int rc = load(path, model, view, at, &mine);
	if (agree(world, rc, &mine, &all, e))
		return -1;
	if (all.code == ERR_NONE)
		return 1;
	if (rc) /* the supervisor hears of it once */
		log_line(all.rank == comm_rank(world) && all.code == ERR_CORRUPT ? LOG_WARN : LOG_INFO, "%s", mine.text);
	share_failure(rc, &mine, &all, path, e);
	return all.code == ERR_CORRUPT ? 0 : -1;
}

/* What a failed attempt has read must not stay: moments begin at zero. */
static void forget(const struct state_view *view)
{
	size_t bytes = (size_t)view->catalogue->elements * sizeof(float);
	memset(view->params, 0, bytes);
	memset(view->m, 0, bytes);
	memset(view->v, 0, bytes);
}

int state_resume(struct comm *world, const char *wish, const char *dir, json_t *model,
		 const struct state_view *view, struct ckpt_state *at, struct err *e)
{
	for (;;) {
		char path[JOB_PATH];
		if (choose(world, *wish ? wish : "none", dir, model, path, e))
			return -1;
		if (!path[0])
			return 0;
		int rc = try_load(world, path, model, view, at, e);
		if (rc || !strcmp(path, wish))
			return rc == 1 ? 1 : -1;
		struct err mine = ERR_INIT;
		struct verdict all;
		forget(view);
		rc = comm_rank(world) == 0 ? set_aside(path, &mine) : 0;
		if (agree(world, rc, &mine, &all, e))
			return -1;
		if (all.code != ERR_NONE)
			return share_failure(rc, &mine, &all, path, e);
	}
}
