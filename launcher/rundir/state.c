#include "launcher/rundir/state.h"

#include "base/file.h"
#include "base/run_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 8 << 20 };

static const struct {
	const char *word;
	bool active;
} states[RUNDIR_STATE_COUNT] = {
#define STATE_ROW(id, word, active, doc) [RUNDIR_STATE_##id] = { word, active },
	RUNDIR_STATES(STATE_ROW)
#undef STATE_ROW
};

/* clang-format off */

#define STATE_FUNCTIONS(table, FIELDS) \
	static const struct fields_row *table##_rows(void) \
	{ \
		typedef struct rundir_##table fields_struct; \
		static const struct fields_row rows[] = { FIELDS(FIELDS_ROW) FIELDS_END }; \
		return rows; \
	} \
	json_t *rundir_##table##_json(const struct rundir_##table *from) \
	{ \
		return fields_json(table##_rows(), from); \
	} \
	int rundir_##table##_read(const json_t *object, struct rundir_##table *to, struct err *e) \
	{ \
		return fields_read(table##_rows(), object, RUN_STATE, to, e); \
	}
RUNDIR_STATE_TABLES(STATE_FUNCTIONS)

/* clang-format on */

const char *rundir_state_word(enum rundir_state_id id)
{
	return id < RUNDIR_STATE_COUNT ? states[id].word : "unknown";
}

enum rundir_state_id rundir_state_find(const char *word)
{
	int id = 0;
	while (id < RUNDIR_STATE_COUNT && strcmp(states[id].word, word))
		id++;
	return (enum rundir_state_id)id;
}

bool rundir_state_active(enum rundir_state_id id)
{
	return id < RUNDIR_STATE_COUNT && states[id].active;
}

int rundir_state_check(const json_t *object, struct rundir_state *out, struct err *e)
{
	json_int_t version = json_integer_value(json_object_get(object, "version"));
	if (version > RUNDIR_STATE_VERSION)
		return err_set(e, ERR_PROTO,
			       "a newer muster wrote it (version %lld of the format; this muster "
			       "reads versions up to %d); use that muster",
			       (long long)version, RUNDIR_STATE_VERSION);
	if (rundir_state_read(object, out, e))
		return -1;
	if (rundir_state_find(out->state) == RUNDIR_STATE_COUNT)
		return err_set(e, ERR_PROTO, "the state \"%.40s\" does not exist", out->state);
	if (!json_is_array(out->warnings) || !json_is_array(out->stand_out))
		return err_set(e, ERR_PROTO, "warnings and stand_out must be lists");
	return 0;
}

int rundir_state_parse(const char *text, size_t len, json_t **object, struct rundir_state *out,
		       struct err *e)
{
	json_error_t why;
	*object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!json_is_object(*object))
		err_set(e, ERR_PROTO, "it is not a JSON object%s%s", *object ? "" : ": ",
			*object ? "" : why.text);
	else if (!rundir_state_check(*object, out, e))
		return 0;
	json_decref(*object);
	*object = NULL;
	return -1;
}

int rundir_state_load(const char *run, json_t **object, struct rundir_state *out, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	*object = NULL;
	run_path(path, run, RUN_STATE);
	int rc = file_slurp_own(path, FILE_MAX, &text, e);
	if (!rc && rundir_state_parse(buf_str(&text), text.len, object, out, &why))
		rc = err_set(e, why.code,
			     "%.300s: %.400s; a run that is at work replaces the file within some "
			     "seconds, and its events.jsonl says what has happened",
			     path, why.text);
	buf_fini(&text);
	return rc;
}

/* Not file_replace(), which syncs: the supervisor's loop must not wait for a disk. */
static int replace(const char *path, const char *text, struct err *e)
{
	char beside[RUN_PATH + 8];
	struct err why = ERR_INIT;
	snprintf(beside, sizeof beside, "%s.new", path);
	int fd = file_open(beside, O_WRONLY | O_CREAT | O_TRUNC, FILE_OWN, &why);
	if (fd < 0)
		return err_set(e, why.code, "%s", why.text);
	int rc = file_write_full(fd, text, strlen(text)) ? -1 : 0;
	int error = errno;
	close(fd);
	if (!rc && !rename(beside, path))
		return 0;
	error = rc ? error : errno;
	unlink(beside);
	errno = error;
	return err_errno(e, file_error_code(error), "%s: cannot write", path);
}

int rundir_state_save(struct rundir *r, const json_t *object, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, rundir_path(r), RUN_STATE);
	char *text = json_dumps(object, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	int rc = text ? replace(path, text, e)
		      : err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	free(text);
	return rc;
}
