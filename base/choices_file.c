/* Reads and writes the file of choices. */
#include "base/choices.h"

#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

/* A choice takes at most three texts and its value in hexadecimal. */
enum {
	FILE_MOST = CHOICES_MOST * (3 * CHOICES_TEXT + 2 * CHOICES_VALUE + 32),
	LOCK_TRIES = 100,
	LOCK_PAUSE = 20000000 /* ns */
};

bool choices_cache_path(char *path, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;
	if (cache && cache[0] == '/')
		n = snprintf(path, size, "%s/muster/choices", cache);
	else if (home && home[0] == '/')
		n = snprintf(path, size, "%s/.cache/muster/choices", home);
	else
		return false;
	return n > 0 && (size_t)n < size;
}

/* Adds what the file has. `skipped` gets the number of its damaged lines. */
static int read_file(struct choices *c, const char *path, int *skipped, struct err *e)
{
	struct buf text = BUF_INIT;
	struct err trouble = ERR_INIT;
	int rc = 0;
	*skipped = 0;
	if (!file_slurp_own(path, FILE_MOST, &text, &trouble))
		*skipped = choices_read(c, buf_str(&text), text.len, false);
	else if (trouble.code == ERR_CORRUPT)
		*skipped = 1;
	else if (trouble.code != ERR_NOTFOUND)
		rc = err_set(e, trouble.code, "%s", trouble.text);
	buf_fini(&text);
	return rc;
}

int choices_load(struct choices *c, const char *path, struct err *e)
{
	int skipped;
	if (read_file(c, path, &skipped, e))
		return -1;
	if (skipped)
		log_warn("%s: %d damaged lines are ignored; what they chose is measured again",
			 path, skipped);
	return 0;
}

/* Returns the lock's descriptor, or -1: go on without it. */
static int lock_file(const char *path)
{
	char name[PATH_MAX];
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE };
	if ((size_t)snprintf(name, sizeof name, "%s.lock", path) >= sizeof name)
		return -1;
	int fd = file_open(name, O_RDWR | O_CREAT, FILE_OWN, NULL);
	for (int tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); tries++) {
		if (tries == LOCK_TRIES || (errno != EWOULDBLOCK && errno != EINTR)) {
			file_close(fd);
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	return fd;
}

static int make_folder(const char *path, struct err *e)
{
	char folder[PATH_MAX];
	snprintf(folder, sizeof folder, "%s", path);
	char *end = strrchr(folder, '/');
	if (!end || end == folder)
		return 0;
	*end = '\0';
	return file_make_dirs(folder, e);
}

/* The file's choices, with those of the table in place of them. */
static int merge(const struct choices *c, const char *path, struct buf *out, struct err *e)
{
	struct choices *all = choices_open();
	struct buf own = BUF_INIT;
	int skipped, rc = -1;
	choices_write(c, &own);
	if (!all || buf_failed(&own)) {
		err_set(e, ERR_NOMEM, "%s: no memory to write it; close other programs", path);
		goto done;
	}
	choices_read(all, own.data, own.len, true);
	if (read_file(all, path, &skipped, e))
		goto done;
	choices_write(all, out);
	rc = buf_failed(out) ? err_set(e, ERR_NOMEM,
				       "%s: no memory to write it; close other programs", path)
			     : 0;
done:
	choices_close(all);
	buf_fini(&own);
	return rc;
}

int choices_save(const struct choices *c, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	if (make_folder(path, e))
		return -1;
	int lock = lock_file(path);
	int rc = merge(c, path, &text, e) || file_replace(path, text.data, text.len, e) ? -1 : 0;
	if (lock >= 0)
		file_close(lock);
	buf_fini(&text);
	return rc;
}
