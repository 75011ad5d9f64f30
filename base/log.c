#include "base/log.h"

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
} out = { .fd = 2, .least = LOG_INFO, .who = "muster", .splitting = ATOMIC_FLAG_INIT };

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

void log_line(enum log_level level, const char *fmt, ...)
{
	if (level < out.least && !(out.hook && level >= out.hook_least))
		return;
	char line[2048];
	struct timespec now;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	int head = snprintf(line, sizeof line,
			    "%04d-%02d-%02d %02d:%02d:%02d.%03ld %-5s %s: ", tm.tm_year + 1900,
			    tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
			    now.tv_nsec / 1000000, words[level], out.who);
	va_list ap;
	va_start(ap, fmt);
	int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, ap);
	va_end(ap);
	if (out.hook && level >= out.hook_least)
		out.hook(level, line + head, out.hook_arg);
	if (level < out.least)
		return;
	size_t len = (size_t)head + (body < 0 ? 0 : (size_t)body);
	if (len > sizeof line - 2)
		len = sizeof line - 2;
	line[len++] = '\n';
	if (out.full)
		count((int64_t)len);
	/* A failed write to the log cannot be reported anywhere. */
	if (write(out.fd, line, len) < 0)
		return;
}
