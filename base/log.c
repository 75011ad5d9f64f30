#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
	int fd;
	enum log_level least, hook_least;
	char who[64];
	void (*hook)(enum log_level, const char *, void *);
	void *hook_arg;
	void (*full)(void *);
	void *full_arg;
	int64_t most;
	_Atomic int64_t size; /* of the file */
	atomic_flag splitting;
	atomic_int failure;
	pthread_mutex_t lock; /* while a line is written, or the file replaced */
} out = { .fd = 2,
	  .least = LOG_INFO,
	  .who = "muster",
	  .splitting = ATOMIC_FLAG_INIT,
	  .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *const words[] = { "debug", "info", "warn", "error" };

void log_setup(int fd, enum log_level least, const char *who)
{
	out.fd = fd;
	out.least = least;
	snprintf(out.who, sizeof out.who, "%s", who);
}

void log_hook(enum log_level least, void (*hook)(enum log_level, const char *, void *), void *arg)
{
	out.hook_least = least;
	out.hook_arg = arg;
	out.hook = hook;
}

void log_limit(int64_t size, int64_t most, void (*full)(void *arg), void *arg)
{
	atomic_store(&out.size, size);
	out.most = most;
	out.full_arg = arg;
	out.full = full;
}

int log_replace(int fd, int64_t size)
{
	pthread_mutex_lock(&out.lock);
	int rc = dup3(fd, out.fd, O_CLOEXEC);
	if (rc >= 0)
		atomic_store(&out.size, size);
	pthread_mutex_unlock(&out.lock);
	return rc < 0 ? -1 : 0;
}

/* Other threads go on writing while one splits the file. */
static void count(int64_t len)
{
	int64_t size = atomic_fetch_add(&out.size, len);
	if (!size || size + len <= out.most || atomic_flag_test_and_set(&out.splitting))
		return;
	if (atomic_load(&out.size) > out.most) {
		out.full(out.full_arg);
		atomic_store(&out.size, len);
	}
	atomic_flag_clear(&out.splitting);
}

const char *log_level_word(enum log_level level)
{
	return words[level];
}

int log_level_parse(const char *word)
{
	for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
		if (!strcmp(word, words[i]))
			return i;
	return -1;
}

size_t log_head(const char *word, char head[LOG_HEAD])
{
	struct timespec now;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	return (size_t)snprintf(head, LOG_HEAD, "%04d-%02d-%02d %02d:%02d:%02d.%03ld %-5.5s %s: ",
				tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
				tm.tm_sec, now.tv_nsec / 1000000, word, out.who);
}

static void write_all(const char *lines, size_t len)
{
	while (len) {
		ssize_t n = write(out.fd, lines, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int none = 0;
			atomic_compare_exchange_strong(&out.failure, &none, errno);
			return;
		}
		lines += n;
		len -= (size_t)n;
	}
}

void log_block(const char *lines, size_t len)
{
	if (out.full)
		count((int64_t)len);
	pthread_mutex_lock(&out.lock);
	write_all(lines, len);
	pthread_mutex_unlock(&out.lock);
}

int log_failure(void)
{
	return atomic_load(&out.failure);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	if (level < out.least && !(out.hook && level >= out.hook_least))
		return;
	char line[2048];
	size_t head = log_head(words[level], line);
	va_list ap;
	va_start(ap, fmt);
	int body = vsnprintf(line + head, sizeof line - head - 1, fmt, ap);
	va_end(ap);
	if (out.hook && level >= out.hook_least)
		out.hook(level, line + head, out.hook_arg);
	if (level < out.least)
		return;
	size_t len = head + (body < 0 ? 0 : (size_t)body);
	if (len > sizeof line - 2)
		len = sizeof line - 2;
	line[len++] = '\n';
	log_block(line, len);
}
