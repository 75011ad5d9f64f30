#include "launcher/rundir/rollbacks.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/ranges.h"
#include "base/run_paths.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4 << 20 };

typedef struct rundir_rollback fields_struct;

static const struct fields_row rows[] = { RUNDIR_ROLLBACK_FIELDS(FIELDS_ROW) FIELDS_END };

static int parse_line(const char *text, size_t len, json_t *list, struct err *e)
{
	struct rundir_rollback r;
	struct ranges fits = { 0 };
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	int rc = 0;
	if (!json_is_object(o) || fields_read(rows, o, "a rollback", &r, NULL) ||
	    ranges_add(&fits, r.first, r.count, NULL))
		rc = err_set(e, ERR_CORRUPT,
			     "line %zu is damaged; put it right after the skip lines of "
			     "ledger.jsonl, or write these positions into data.skip and remove the "
			     "file",
			     json_array_size(list) + 1);
	else if (json_array_append(list, o))
		rc = err_set(e, ERR_NOMEM, "no memory for line %zu", json_array_size(list) + 1);
	json_decref(o);
	return rc;
}

int rundir_rollbacks_parse(const char *text, size_t len, json_t **out, struct err *e)
{
	json_t *list = json_array();
	int rc = list ? 0 : err_set(e, ERR_NOMEM, "no memory for the rollbacks");
	for (size_t at = 0; !rc && at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		rc = parse_line(text + at, n, list, e);
		at += n + 1;
	}
	if (rc) {
		json_decref(list);
		return -1;
	}
	*out = list;
	return 0;
}

int rundir_rollbacks_read(const char *run, json_t **out, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	run_path(path, run, RUN_ROLLBACKS);
	int rc = file_slurp_own(path, FILE_MAX, &text, &why);
	if (rc && why.code == ERR_NOTFOUND)
		rc = 0;
	else if (rc && e)
		*e = why;
	if (!rc && rundir_rollbacks_parse(buf_str(&text), text.len, out, e))
		rc = err_prefix(e, "%s", path);
	buf_fini(&text);
	return rc;
}

static int write_list(const char *path, const json_t *list, struct err *e)
{
	struct buf text = BUF_INIT;
	for (size_t i = 0; i < json_array_size(list); i++) {
		char *line = json_dumps(json_array_get(list, i),
					JSON_COMPACT | JSON_PRESERVE_ORDER);
		if (line)
			buf_printf(&text, "%s\n", line);
		else
			text.failed = true;
		free(line);
	}
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory to write it", path)
				   : file_replace(path, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

int rundir_rollbacks_add(const char *run, json_t *list, const struct rundir_rollback *r,
			 struct err *e)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_ROLLBACKS);
	size_t n = json_array_size(list);
	if (json_array_append_new(list, fields_json(rows, r)))
		return err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	if (!write_list(path, list, e))
		return 0;
	json_array_remove(list, n);
	return -1;
}
