#include "base/spill.h"

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns a descriptor of a file that has no name any more. */
static int open_nameless(const char *dir, const char *what, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/muster-spill-XXXXXX", dir) >= (int)sizeof path)
		return err_set(
			e, ERR_IO,
			"%s: the path of folder %.200s… is too long for a file in it; set TMPDIR",
			what, dir);
	int fd = mkostemp(path, O_CLOEXEC); /* 0600 */
	if (fd < 0)
		return err_errno(e, ERR_IO,
				 "%s: cannot make a file in %.500s; set TMPDIR to a folder on a "
				 "disk with room",
				 what, dir);
	unlink(path);
	return fd;
}

/* Reserves disk blocks for the whole file. */
static int take_room(int fd, const char *dir, const char *what, size_t bytes, struct err *e)
{
	do
		errno = posix_fallocate(fd, 0, (off_t)bytes);
	while (errno == EINTR);
	if (errno == EFBIG)
		return err_set(e, ERR_IO,
			       "%s: a file of %zu bytes in %.500s is larger than allowed%s", what,
			       bytes, dir, process_write_remedy(EFBIG));
	if (errno)
		return err_errno(e, ERR_IO,
				 "%s: no room for a file of %zu bytes in %.500s; free some, or set "
				 "TMPDIR to a folder "
				 "on another disk",
				 what, bytes, dir);
	return 0;
}

int spill_open(const char *dir, const char *what, size_t bytes, void **out, struct err *e)
{
	const char *own = getenv("TMPDIR");
	if (own && *own)
		dir = own;
	size_t length = bytes ? bytes : 1;
	int fd = open_nameless(dir, what, e);
	if (fd < 0)
		return -1;
	void *p = MAP_FAILED;
	if (!take_room(fd, dir, what, length, e)) {
		p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			err_errno(e, ERR_NOMEM, "%s: cannot map a file of %zu bytes in %.500s",
				  what, length, dir);
	}
	close(fd);
	if (p == MAP_FAILED)
		return -1;
	*out = p;
	return 0;
}

void spill_close(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, bytes ? bytes : 1);
}
