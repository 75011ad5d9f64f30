/* A library for LD_PRELOAD: each write to a file below a folder ckpt/ takes SLOW_MS milliseconds,
 * as on a file system that is overloaded. If SLOW_WHILE is set, this is so while the file of that
 * name exists, and no longer. */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_checkpoint(int fd)
{
	char path[64], link[1024];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, link, sizeof link - 1);
	link[n > 0 ? n : 0] = '\0';
	return strstr(link, "/ckpt/") != NULL;
}

static void wait_ms(int ms, const char *file)
{
	enum { SLICE = 20 };
	for (; ms > 0 && (!file || !access(file, F_OK)); ms -= SLICE)
		poll(NULL, 0, ms < SLICE ? ms : SLICE);
}

ssize_t write(int fd, const void *data, size_t n);

ssize_t write(int fd, const void *data, size_t n)
{
	const char *ms = getenv("SLOW_MS"), *file = getenv("SLOW_WHILE");
	ssize_t (*real)(int, const void *, size_t);
	*(void **)&real = dlsym(RTLD_NEXT, "write");
	if (ms && is_checkpoint(fd))
		wait_ms(atoi(ms), file);
	return real(fd, data, n);
}
