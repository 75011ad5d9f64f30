#include "base/log.h"

#include <stdarg.h>
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
} out = { .fd = 2, .least = LOG_INFO, .who = "muster" };

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
	/* A failed write to the log cannot be reported anywhere. */
	if (write(out.fd, line, len) < 0)
		return;
}
