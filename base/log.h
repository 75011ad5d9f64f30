/*
 * log — lines for people. Only a main, the supervisor and the training loop write them.
 *
 * Libraries do not log: they return errors (base/err.h). A line is written
 * with one write(2), so that lines of several threads do not mix. Every line reads
 * `YYYY-MM-DD HH:MM:SS.mmm LEVEL who: text`, in local time; `muster logs` merges the files of all
 * ranks by it (launcher/rundir/logs.h). A hook, when set, also gets each line at or
 * above its level: the agent uses it to send warnings to the supervisor.
 */
#ifndef MUSTER_BASE_LOG_H
#define MUSTER_BASE_LOG_H

#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* fd: where lines are written (default 2). least: the lowest level that is written (default
 * LOG_INFO). who: the source that each line names, such as "node3:12"; it is copied. */
void log_setup(int fd, enum log_level least, const char *who);

/* hook(level, text, arg) runs on the thread that logs; it must not log. */
void log_hook(enum log_level least, void (*hook)(enum log_level, const char *text, void *arg),
	      void *arg);

/* Calls full(arg), which may replace the file behind the descriptor, before a line that makes the file
 * longer than `most`. size: how long it is now. The thread that logs runs it, one at a time; it must not
 * log. full NULL: never. */
void log_limit(int64_t size, int64_t most, void (*full)(void *arg), void *arg);

/* Replaces the file behind the descriptor by that of `fd`, which is `size` bytes long. When it returns, no
 * thread writes to the old one any more. Any thread. -1: errno is set, and nothing has changed. */
int log_replace(int fd, int64_t size);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* For lines that a program wrote, whose number and length log_line() does not suit. log_head writes the
 * begin of a line, up to and with "who: ", at this moment; `word`, of at most 5 letters, stands where
 * other lines have their level. Returns its length. log_block writes complete lines. */
enum { LOG_HEAD = 128 };
size_t log_head(const char *word, char out[LOG_HEAD]);
void log_block(const char *lines, size_t len);
/* The errno of the first write that has failed, so that lines are missing; 0: none has. */
int log_failure(void);

const char *log_level_word(enum log_level level);
/* -1: the word is not a level. */
int log_level_parse(const char *word);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
