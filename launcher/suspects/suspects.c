#include "launcher/suspects/suspects.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/jsonl.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	FILE_MOST = 16 << 20, /* of one user */
	FILE_LONG = 1 << 20,  /* from here on old lines are removed */
	FILES_MAX = 4096
};

/* Seconds after which a line weighs less than a hundredth. */
#define OLD (8 * SUSPECTS_HALF_LIFE)

typedef struct suspect_line fields_struct;

static const struct fields_row rows[] = { SUSPECT_LINE_FIELDS(FIELDS_ROW) FIELDS_END };

static const char *const words[SUSPECT_KIND_COUNT] = { "",
#define SUSPECT_WORD(id, word, share, text) word,
						       SUSPECT_KINDS(SUSPECT_WORD)
#undef SUSPECT_WORD
};

const char *suspects_kind_word(enum suspect_kind kind)
{
	return words[kind];
}

enum suspect_kind suspects_kind_of(const char *word)
{
	for (int k = SUSPECT_NONE + 1; k < SUSPECT_KIND_COUNT; k++)
		if (!strcmp(words[k], word))
			return (enum suspect_kind)k;
	return SUSPECT_NONE;
}

/* --- Where it is -------------------------------------------------------------------- */

int suspects_place(const char *key, struct suspects_place *out, struct err *e)
{
	const char *site = getenv("MUSTER_NODES_DIR"), *cache = getenv("XDG_CACHE_HOME"),
		   *home = getenv("HOME");
	int n = -1;
	out->shared = *key || (site && *site);
	if (out->shared)
		n = snprintf(out->dir, sizeof out->dir, "%s", *key ? key : site);
	else if (cache && *cache == '/')
		n = snprintf(out->dir, sizeof out->dir, "%s/muster/nodes", cache);
	else if (home && *home == '/')
		n = snprintf(out->dir, sizeof out->dir, "%s/.cache/muster/nodes", home);
	if (n < 0 || (size_t)n >= sizeof out->dir - NAME_MAX - 1)
		return err_set(e, ERR_NOTFOUND,
			       "the list of suspect nodes has no folder: set [health] nodes_dir, "
			       "MUSTER_NODES_DIR or HOME");
	return 0;
}

const char *suspects_cluster(bool slurm)
{
	const char *name = getenv("SLURM_CLUSTER_NAME");
	return !slurm ? SUSPECTS_LOCAL : name ? name : "";
}

/* --- Writing ------------------------------------------------------------------------ */

static bool is_young(json_t *line, void *now)
{
	return *(const double *)now - json_number_value(json_object_get(line, "time")) < OLD;
}

int suspects_append(const struct suspects_place *p, const struct suspect_line *line, struct err *e)
{
	char path[SUSPECTS_PATH + NAME_MAX];
	double now = clock_wall_s();
	snprintf(path, sizeof path, "%s/%u.jsonl", p->dir, (unsigned)geteuid());
	if (file_make_dirs(p->dir, e) || jsonl_shorten(path, FILE_LONG, is_young, &now, e))
		return -1;
	json_t *o = fields_json(rows, line);
	int rc = jsonl_append(path, o, p->shared ? 0644 : 0600, e);
	json_decref(o);
	return rc;
}

/* --- Reading ------------------------------------------------------------------------ */

struct parsing {
	struct suspects *out;
	unsigned user;
};

static int take_line(json_t *document, void *arg)
{
	struct parsing *p = arg;
	struct suspects *s = p->out;
	struct suspects_entry x = { .user = p->user };
	struct err why = ERR_INIT;
	if (fields_read(rows, document, "line", &x.line, &why) || !isfinite(x.line.time) ||
	    !*x.line.node || strlen(x.line.node) >= SUSPECTS_NODE)
		return 0;
	x.kind = suspects_kind_of(x.line.kind);
	if (!x.kind)
		return 0;
	if (!(s->n & (s->n - 1))) { /* the room doubles */
		struct suspects_entry *more = realloc(s->entries,
						      (s->n ? 2 * (size_t)s->n : 1) * sizeof *more);
		if (!more)
			return -1;
		s->entries = more;
	}
	if (json_array_append(s->documents, document))
		return -1;
	s->entries[s->n++] = x;
	return 0;
}

int suspects_parse(const char *text, size_t len, unsigned user, struct suspects *out, struct err *e)
{
	struct parsing p = { .out = out, .user = user };
	if (!out->documents)
		out->documents = json_array();
	if (out->documents && !jsonl_parse(text, len, take_line, &p))
		return 0;
	return err_set(e, ERR_NOMEM, "no memory for the list of suspect nodes");
}

/* Whether the name is UID.jsonl and the file belongs to that user. */
static bool is_users_file(const char *path, const char *name, unsigned *user)
{
	struct stat st;
	char end, canonical[32];
	if (sscanf(name, "%u.json%c", user, &end) != 2)
		return false;
	snprintf(canonical, sizeof canonical, "%u.jsonl", *user);
	return !strcmp(name, canonical) && !lstat(path, &st) && S_ISREG(st.st_mode) &&
	       st.st_uid == *user;
}

static int compare_times(const void *a, const void *b)
{
	const struct suspects_entry *x = a, *y = b;
	return (x->line.time > y->line.time) - (x->line.time < y->line.time);
}

static int read_file(const char *path, unsigned user, struct suspects *out, struct err *e)
{
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = 0;
	if (!file_slurp_own(path, FILE_MOST, &text, &why))
		rc = suspects_parse(buf_str(&text), text.len, user, out, e);
	buf_fini(&text);
	return rc;
}

int suspects_read(const struct suspects_place *p, struct suspects *out, struct err *e)
{
	DIR *dir = opendir(p->dir);
	const struct dirent *d;
	int files = 0, rc = 0;
	*out = (struct suspects){ .n = 0 };
	while (dir && !rc && files < FILES_MAX && (d = readdir(dir))) {
		char path[SUSPECTS_PATH + NAME_MAX + 2];
		unsigned user;
		snprintf(path, sizeof path, "%s/%s", p->dir, d->d_name);
		if (!is_users_file(path, d->d_name, &user))
			continue;
		files++;
		rc = read_file(path, user, out, e);
	}
	if (dir)
		closedir(dir);
	if (rc)
		suspects_free(out);
	else if (out->n)
		qsort(out->entries, (size_t)out->n, sizeof *out->entries, compare_times);
	return rc;
}

void suspects_free(struct suspects *s)
{
	json_decref(s->documents);
	free(s->entries);
	*s = (struct suspects){ .n = 0 };
}
