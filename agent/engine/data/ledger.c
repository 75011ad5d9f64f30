#include "agent/engine/data/ledger.h"

#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ledger {
	struct ledger_options o;
	char path[PATH_MAX];
	int fd;           /* on rank 0 */
	int64_t from, to; /* the steps since the last flush */
	int64_t first;    /* sample position of `from` */
	struct ranges skips;
	struct digest chain; /* digest of those steps */
	struct buf pending;  /* lines that are not written yet */
	bool torn;           /* the file ends within a line */
	bool named;          /* the folder was synced, so the file's name is durable */
	char note[256], told[256];
};

struct entry { /* what each rank sends to rank 0 */
	int64_t replica, offset, share;
	struct digest chain;
};

void data_ledger_chain(struct digest *chain, const struct digest *step)
{
	struct digest pair[2] = { *chain, *step };
	*chain = ckpt_digest_of(pair, sizeof pair);
}

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

/* Adds a line and takes the reference. */
static int add_line(struct ledger *l, json_t *line, struct err *e)
{
	char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	if (text)
		buf_printf(&l->pending, "%s\n", text);
	json_decref(line);
	int rc = text && !buf_failed(&l->pending)
			 ? 0
			 : err_set(e, ERR_NOMEM, "%s: no memory for a line", l->path);
	free(text);
	return rc;
}

static int add_start(struct ledger *l, struct err *e)
{
	return add_line(l,
			json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:O}", "event", "start",
				  "generation", (json_int_t)l->o.generation, "step",
				  (json_int_t)l->o.step, "samples", (json_int_t)l->o.samples,
				  "skipped", (json_int_t)l->o.skipped, "order", order_json(&l->o),
				  "layout", l->o.layout),
			e);
}

/* Adds the parts of the ranges that lie behind the generation's position. */
static int add_skips(struct ledger *l, struct err *e)
{
	for (int i = 0; i < l->o.n_skips; i++) {
		const struct ledger_skip *k = &l->o.skips[i];
		int64_t first = k->first > l->first ? k->first : l->first,
			count = k->first + k->count - first;
		if (count > 0 &&
		    add_line(l,
			     json_pack("{s:s, s:I, s:I, s:I, s:s}", "event", "skip", "generation",
				       (json_int_t)l->o.generation, "first", (json_int_t)first,
				       "count", (json_int_t)count, "reason", k->reason),
			     e))
			return -1;
	}
	return 0;
}

/* Writes the pending lines. If a write fails, the remaining lines are written whole the next time,
 * after the truncated line. */
static void write_pending(struct ledger *l, bool sync)
{
	struct err e = ERR_INIT;
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
	l->fd = file_open(l->path, O_RDWR | O_CREAT | O_APPEND, FILE_OWN, e);
	if (l->fd < 0)
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
	if (!rc &&
	    snprintf(l->path, sizeof l->path, "%s/" LEDGER_NAME, opt->dir) >= (int)sizeof l->path)
		rc = err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter one",
			     opt->dir);
	if (!rc && comm_rank(opt->world) == 0)
		rc = open_file(l, e) || add_start(l, e) || add_skips(l, e) ? -1 : 0;
	if (rc) {
		data_ledger_close(l);
		return -1;
	}
	if (l->fd >= 0)
		write_pending(l, true);
	*out = l;
	return 0;
}

void data_ledger_close(struct ledger *l)
{
	if (!l)
		return;
	if (l->fd >= 0 && l->pending.len)
		write_pending(l, true); /* the disk may have room by now */
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

static void add_steps(struct ledger *l, const struct entry *replicas, int n)
{
	char hex[DIGEST_HEX];
	buf_printf(&l->pending,
		   "{\"event\":\"steps\",\"generation\":%u,\"from\":%lld,\"to\":%lld,\"first\":%"
		   "lld,\"global\":%lld,"
		   "\"replicas\":[",
		   l->o.generation, (long long)l->from, (long long)l->to, (long long)l->first,
		   (long long)l->o.global);
	for (int i = 0; i < n; i++) {
		ckpt_digest_hex(&replicas[i].chain, hex);
		buf_printf(&l->pending, "%s[%lld,%lld,\"%s\"]", i ? "," : "",
			   (long long)replicas[i].offset, (long long)replicas[i].share, hex);
	}
	buf_puts(&l->pending, "]}\n");
}

static int write_steps(struct ledger *l, struct entry *all, bool sync, struct err *e)
{
	int n = 0;
	if (join_entries(l, all, comm_size(l->o.world), &n, e))
		return -1;
	add_steps(l, all, n);
	if (buf_failed(&l->pending))
		return err_set(e, ERR_NOMEM, "%s: no memory for a line", l->path);
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
