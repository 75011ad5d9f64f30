#include "agent/engine/data/ledger.h"

#include "agent/engine/data/ledger_parts.h"
#include "base/file.h"
#include "base/process.h"
#include "base/run_paths.h"
#include "base/segments.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ledger {
	struct ledger_options o;
	char path[RUN_PATH];
	int fd;           /* on rank 0; it stays the same when the file is split */
	bool locked;      /* the file may be split */
	off_t refused;    /* its size when it could not be split; 0: it could */
	int64_t from, to; /* the steps since the last flush */
	int64_t first;    /* sample position of `from` */
	struct ranges skips;
	struct digest chain; /* digest of those steps */
	struct buf pending;  /* lines that are not written yet */
	bool torn;           /* the file ends within a line */
	bool named;          /* the folder was synced, so the file's name is durable */
	char note[256], told[256];
	pthread_t thread; /* merges parts */
	bool merges;      /* the thread is to be joined */
	atomic_bool merged;
	struct ledger_merging merging;
	struct err why; /* of the thread */
};

struct entry { /* what each rank sends to rank 0 */
	int64_t replica, offset, share;
	struct digest chain;
};

/* Paths are recorded absolute, so that an audit in any folder finds the files. */
static json_t *absolute(const char *path)
{
	char here[PATH_MAX], full[2 * PATH_MAX];
	if (path[0] == '/' || !getcwd(here, sizeof here))
		return json_string(path);
	snprintf(full, sizeof full, "%s/%s", here, path);
	return json_string(full);
}

static json_t *order_json(const struct ledger_options *o)
{
	char seed[32];
	json_t *sources = json_array();
	for (int i = 0; i < dataset_sources(o->data); i++) {
		struct dataset_source s = dataset_source(o->data, i);
		json_array_append_new(sources,
				      json_pack("{s:o, s:f, s:I, s:I}", "path", absolute(s.path),
						"weight", s.weight, "tokens", (json_int_t)s.tokens,
						"samples", (json_int_t)s.samples[DATA_TRAIN]));
	}
	snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->seed);
	return json_pack("{s:s, s:I, s:f, s:o}", "seed", seed, "seq",
			 (json_int_t)dataset_seq(o->data), "validation",
			 dataset_validation(o->data), "sources", sources);
}

static int add_start(struct ledger *l, struct err *e)
{
	struct ledger_start start = { .generation = l->o.generation,
				      .step = l->o.step,
				      .samples = l->o.samples,
				      .has_skipped = true,
				      .skipped = l->o.skipped,
				      .order = order_json(&l->o),
				      .layout = l->o.layout };
	int rc = data_ledger_write_start(&l->pending, &start, e);
	json_decref(start.order);
	return rc;
}

/* Adds the parts of the ranges that lie behind the generation's position. */
static int add_skips(struct ledger *l, struct err *e)
{
	for (int i = 0; i < l->o.n_skips; i++) {
		const struct ledger_skip *k = &l->o.skips[i];
		int64_t first = k->first > l->first ? k->first : l->first,
			count = k->first + k->count - first;
		struct ledger_skip_line line = { .generation = l->o.generation,
						 .first = first,
						 .count = count,
						 .reason = k->reason };
		if (count > 0 && data_ledger_write_skip(&l->pending, &line, e))
			return -1;
	}
	return 0;
}

/* --- parts --- */

static void *merge_thread(void *arg)
{
	struct ledger *l = arg;
	data_ledger_merge_parts(&l->merging, &l->why);
	atomic_store(&l->merged, true);
	return NULL;
}

static void join_thread(struct ledger *l)
{
	if (!l->merges)
		return;
	pthread_join(l->thread, NULL);
	l->merges = false;
	if (l->why.code != ERR_NONE)
		snprintf(l->note, sizeof l->note, "%.200s; it is retried later", l->why.text);
}

/* Merges the complete parts on a thread, unless it still does. */
static void start_merge(struct ledger *l)
{
	if (l->merges && !atomic_load(&l->merged))
		return;
	join_thread(l);
	l->why = (struct err)ERR_INIT;
	l->merging = (struct ledger_merging){ .run = l->o.dir,
					      .generation = l->o.generation,
					      .most = LEDGER_SPLIT };
	atomic_store(&l->merged, false);
	l->merges = pthread_create(&l->thread, NULL, merge_thread, l) == 0;
}

static bool has_parts(const struct ledger *l)
{
	struct segments s;
	if (segments_list(l->o.dir, LEDGER_NAME, &s, NULL))
		return false;
	bool has = s.n > 0;
	segments_free(&s);
	return has;
}

/* Splits the file before lines that would make it too long. After a split that failed, the file
 * grows by so much before the next try. */
static void split_if_long(struct ledger *l, off_t size)
{
	int64_t most = l->o.split ? l->o.split : LEDGER_SPLIT;
	if (!l->locked || l->torn || !size || size + (off_t)l->pending.len <= most ||
	    (l->refused && size < l->refused + most / 8))
		return;
	bool split = data_ledger_split(l->o.dir, l->fd);
	l->refused = split ? 0 : size;
	if (split)
		start_merge(l);
}

/* Writes the head of a file that is empty. */
static void write_head(struct ledger *l)
{
	struct buf head = BUF_INIT;
	struct stat st;
	if (fstat(l->fd, &st) || st.st_size)
		return;
	ssize_t n = data_ledger_write_head(&head, l->o.generation, 0, NULL)
			    ? 0
			    : write(l->fd, head.data, head.len);
	l->torn = n > 0 && n < (ssize_t)head.len;
	buf_fini(&head);
}

/* --- writing --- */

/* Writes the pending lines. If a write fails, the remaining lines are written whole the next time,
 * after the truncated line. */
static void write_pending(struct ledger *l, bool sync)
{
	struct err e = ERR_INIT;
	struct stat st;
	if (l->pending.len && !fstat(l->fd, &st))
		split_if_long(l, st.st_size);
	if (l->pending.len)
		write_head(l);
	if (l->pending.len && l->torn && file_write_full(l->fd, "\n", 1) == 0)
		l->torn = false;
	ssize_t n = !l->pending.len ? 0
		    : l->torn       ? -1
				    : write(l->fd, l->pending.data, l->pending.len);
	if (n == (ssize_t)l->pending.len) {
		buf_clear(&l->pending);
	} else {
		l->torn = l->torn || n > 0;
		snprintf(l->note, sizeof l->note,
			 "%.100s: cannot write what was consumed: %s%s; it is retried at the "
			 "next checkpoint",
			 l->path, n < 0 ? strerror(errno) : "no room",
			 n < 0 ? process_write_remedy(errno) : "");
	}
	if (sync && fdatasync(l->fd))
		snprintf(l->note, sizeof l->note, "%.100s: cannot sync: %s", l->path,
			 strerror(errno));
	else if (sync && !l->named && !file_sync_dir(l->o.dir, &e))
		l->named = true;
}

/* If the previous writer was killed while writing, the file ends within a line. */
static int open_file(struct ledger *l, struct err *e)
{
	char last = '\n';
	if (data_ledger_open_file(l->o.dir, &l->fd, &l->locked, e))
		return err_prefix(e, "the ledger of what is consumed");
	off_t end = lseek(l->fd, 0, SEEK_END);
	if (end > 0 && pread(l->fd, &last, 1, end - 1) != 1)
		return err_errno(e, ERR_IO, "%s: cannot read", l->path);
	l->torn = last != '\n';
	return 0;
}

int data_ledger_open(const struct ledger_options *opt, struct ledger **out, struct err *e)
{
	struct ledger *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory for the ledger");
	l->o = *opt;
	l->fd = -1;
	l->from = l->to = opt->step;
	l->first = opt->samples + opt->skipped;
	int rc = 0;
	for (int i = 0; i < opt->n_skips && !rc; i++)
		rc = ranges_add(&l->skips, opt->skips[i].first, opt->skips[i].count, e);
	if (!rc && strlen(opt->dir) >= PATH_MAX)
		rc = err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter one",
			     opt->dir);
	segments_path(l->path, opt->dir, LEDGER_NAME, 0);
	if (!rc && comm_rank(opt->world) == 0)
		rc = open_file(l, e) || add_start(l, e) || add_skips(l, e) ? -1 : 0;
	if (rc) {
		data_ledger_close(l);
		return -1;
	}
	if (l->fd >= 0)
		write_pending(l, true);
	if (l->fd >= 0 && has_parts(l))
		start_merge(l);
	*out = l;
	return 0;
}

void data_ledger_close(struct ledger *l)
{
	if (!l)
		return;
	if (l->fd >= 0 && l->pending.len)
		write_pending(l, true); /* the disk may have room by now */
	atomic_store(&l->merging.stop, true);
	join_thread(l);
	if (l->fd >= 0)
		close(l->fd);
	buf_fini(&l->pending);
	free(l);
}

void data_ledger_add(struct ledger *l, const struct digest *share)
{
	data_ledger_chain(&l->chain, share);
	l->to++;
}

/* Joins the ranks' entries into one for each replica, in the order of the batch. */
static int join_entries(struct ledger *l, struct entry *all, int n, int *replicas, struct err *e)
{
	int kept = 0;
	for (int i = 0; i < n; i++) {
		int at = 0;
		while (at < kept && all[at].replica != all[i].replica)
			at++;
		if (all[i].replica < 0)
			continue;
		if (at == kept)
			all[kept++] = all[i];
		else if (memcmp(&all[at], &all[i], sizeof all[i]))
			return err_set(e, ERR_CORRUPT,
				       "steps %lld to %lld: rank %d did not read the samples that "
				       "another rank "
				       "of replica %lld was; do "
				       "their hosts see the same files under data.path?",
				       (long long)l->from + 1, (long long)l->to, i,
				       (long long)all[i].replica);
	}
	*replicas = kept;
	return 0;
}

static int add_steps(struct ledger *l, const struct entry *of, int n, struct err *e)
{
	struct ledger_line line = { .generation = l->o.generation,
				    .from = l->from,
				    .to = l->to,
				    .first = l->first,
				    .global = l->o.global,
				    .n = n,
				    .replicas = calloc((size_t)n + 1, sizeof *line.replicas) };
	if (!line.replicas)
		return err_set(e, ERR_NOMEM, "%s: no memory for a line", l->path);
	for (int i = 0; i < n; i++)
		line.replicas[i] = (struct ledger_replica){ of[i].offset, of[i].share,
							    of[i].chain };
	int rc = data_ledger_write_steps(&l->pending, &line, e);
	free(line.replicas);
	return rc;
}

static int write_steps(struct ledger *l, struct entry *all, bool sync, struct err *e)
{
	int n = 0;
	if (join_entries(l, all, comm_size(l->o.world), &n, e) || add_steps(l, all, n, e))
		return -1;
	write_pending(l, sync);
	return 0;
}

int data_ledger_flush(struct ledger *l, bool sync, struct err *e)
{
	struct entry mine = { .replica = l->o.replica,
			      .offset = l->o.offset,
			      .share = l->o.share,
			      .chain = l->chain };
	bool writes = comm_rank(l->o.world) == 0;
	if (l->from == l->to)
		return 0;
	struct entry *all = writes ? malloc((size_t)comm_size(l->o.world) * sizeof *all) : NULL;
	if (writes && !all)
		return err_set(e, ERR_NOMEM, "no memory for the ledger");
	int rc = comm_gather(l->o.world, &mine, all, sizeof mine, COMM_U8, 0, e);
	if (rc)
		err_prefix(e, "ledger");
	else if (writes)
		rc = write_steps(l, all, sync, e);
	free(all);
	if (rc)
		return -1;
	l->first = ranges_end(&l->skips, l->first, (l->to - l->from) * l->o.global);
	l->from = l->to;
	l->chain = (struct digest){ { 0 } };
	return 0;
}

int data_ledger_sync(const struct ledger *l, struct err *e)
{
	if (l->fd >= 0 && fdatasync(l->fd))
		return err_errno(e, ERR_IO, "%s: cannot sync", l->path);
	return 0;
}

const char *data_ledger_note(struct ledger *l)
{
	snprintf(l->told, sizeof l->told, "%s", l->note);
	l->note[0] = '\0';
	return l->told;
}
