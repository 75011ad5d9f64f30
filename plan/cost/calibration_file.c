/* calibration_file: where a calibration is kept. */
#include "plan/cost/calibration_inner.h"

#include "base/file.h"

#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4 * 1024 * 1024 };

void calibration_default(char *path, size_t size)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	*path = '\0';
	if (config && *config)
		snprintf(path, size, "%s/muster/calibration.json", config);
	else if (home && *home)
		snprintf(path, size, "%s/.config/muster/calibration.json", home);
}

int calibration_load(const char *path, struct calibration *out, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(path, FILE_MAX, &text, e) ||
				 calibration_parse(text.data ? text.data : "", text.len, path, out,
						   e)
			 ? -1
			 : 0;
	buf_fini(&text);
	return rc;
}

int calibration_check_host(const char *path, const struct calibration *out, struct err *e)
{
	struct calibration *here = calloc(1, sizeof *here);
	int rc = here ? calibration_here(here, e)
		      : err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
	if (!rc && (strcmp(out->cpu, here->cpu) || out->cores != here->cores))
		rc = err_set(e, ERR_USAGE,
			     "%s was measured on %s, %d cores (%s), and this machine is %s, %d "
			     "cores; run muster bench "
			     "calibrate here",
			     path, out->cpu, out->cores, out->host, here->cpu, here->cores);
	free(here);
	return rc;
}

/* Keeps the chips, which end the struct. */
static void forget_host(struct calibration *c)
{
	memset(c, 0, offsetof(struct calibration, n_chips));
}

static int load_ours(const char *path, struct calibration *out, struct err *e)
{
	return calibration_load(path, out, e) || calibration_check_host(path, out, e) ? -1 : 0;
}

int calibration_begin(const char *word, char *path, size_t size, struct calibration *out,
		      struct err *e)
{
	char folder[PATH_MAX];
	snprintf(path, size, "%s", word ? word : "");
	if (!word)
		calibration_default(path, size);
	if (!*path)
		return err_set(e, ERR_USAGE,
			       "--calibrate: neither XDG_CONFIG_HOME nor HOME is set; give a file, "
			       "as --calibrate=FILE");
	snprintf(folder, sizeof folder, "%s", path);
	if (file_make_dirs(dirname(folder), e))
		return -1;
	if (calibration_load(path, out, NULL))
		memset(out, 0, sizeof *out); /* no compound literal: it would be on the stack */
	else if (calibration_check_host(path, out, NULL))
		forget_host(out);
	return calibration_here(out, e);
}

int calibration_find(const char *word, struct calibration *out, struct err *e)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s", word ? word : "auto");
	if (!strcmp(path, "auto"))
		calibration_default(path, sizeof path);
	if (!*path || !strcmp(path, "none"))
		return err_set(e, ERR_NOTFOUND, "there is no calibration");
	return load_ours(path, out, e);
}

int calibration_save(const struct calibration *c, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	calibration_write(c, &text);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "no memory for the calibration")
				   : file_replace(path, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}
