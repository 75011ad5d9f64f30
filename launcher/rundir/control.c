#include "launcher/rundir/control.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/net.h"
#include "base/run_paths.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4096 };

typedef struct rundir_control fields_struct;

static const struct fields_row rows[] = { RUNDIR_CONTROL_FIELDS(FIELDS_ROW) FIELDS_END };

/* Texts with the secret are wiped before they are freed. */
static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

int rundir_control_save(struct rundir *r, const struct rundir_control *c, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, rundir_path(r), RUN_CONTROL);
	json_t *o = fields_json(rows, c);
	char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
	int rc = text ? file_replace(path, text, strlen(text), e)
		      : err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	wipe(text);
	json_decref(o);
	return rc;
}

void rundir_control_remove(struct rundir *r)
{
	char path[RUN_PATH];
	run_path(path, rundir_path(r), RUN_CONTROL);
	unlink(path);
}

int rundir_control_parse(const char *text, size_t len, json_t **object, struct rundir_control *out,
			 struct err *e)
{
	json_error_t why;
	*object = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	json_int_t version = json_integer_value(json_object_get(*object, "version"));
	if (!json_is_object(*object)) /* jansson's words would quote the secret */
		err_set(e, ERR_PROTO, "it is not a JSON object");
	else if (version > RUNDIR_CONTROL_VERSION)
		err_set(e, ERR_PROTO,
			"a newer muster wrote it (version %lld of the format; this muster reads "
			"versions up to %d); use that muster",
			(long long)version, RUNDIR_CONTROL_VERSION);
	else if (!fields_read(rows, *object, RUN_CONTROL, out, e))
		return 0;
	json_decref(*object);
	*object = NULL;
	return -1;
}

static int check_private(int fd, const char *path, struct err *e)
{
	struct stat st;
	if (fstat(fd, &st))
		return err_errno(e, ERR_IO, "%.300s: cannot read its owner", path);
	if (st.st_uid != geteuid())
		return err_set(e, ERR_AUTH,
			       "%.300s: it belongs to another user (uid %u); only the owner of a "
			       "run controls it",
			       path, (unsigned)st.st_uid);
	if (st.st_mode & 077)
		return err_set(e, ERR_AUTH,
			       "%.300s: other users may read it, and it has a secret; remove it, "
			       "and start the run again",
			       path);
	if (st.st_size > FILE_MAX)
		return err_set(e, ERR_PROTO, "%.300s: it is too long for such a file", path);
	return 0;
}

int rundir_control_load(const char *run, json_t **object, struct rundir_control *out, struct err *e)
{
	char path[RUN_PATH], text[FILE_MAX + 1];
	struct err why = ERR_INIT;
	*object = NULL;
	run_path(path, run, RUN_CONTROL);
	int fd = file_open(path, O_RDONLY, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int rc = check_private(fd, path, e);
	ssize_t n = rc ? 0 : read(fd, text, FILE_MAX);
	if (!rc && n < 0)
		rc = err_errno(e, ERR_IO, "%.300s: cannot read", path);
	close(fd);
	if (!rc && rundir_control_parse(text, (size_t)n, object, out, &why))
		rc = err_set(e, why.code, "%.300s: %.600s", path, why.text);
	explicit_bzero(text, sizeof text);
	return rc;
}
