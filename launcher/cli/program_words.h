/*
 * program_words — `muster run [OPTION …] [JOB.ini] [section.key=value …] -- PROGRAM ARGUMENT …`: a
 * program on the command line becomes words for job_load().
 *
 *     PROGRAM …    job.program, as base/words.h writes it
 *     the name     job.name, from the program's script, unless a word or a job file names the run
 *     device       job.device = cuda if this host or allocation has NVIDIA GPUs, unless a job file or a
 *                  word says what it is
 *     -n N         parallel.dp = N / (tp × cp × pp): the number of tasks
 *
 * The words that a person has given come later, so they count. Only that of -n comes last, because the
 * degrees must be known.
 */
#ifndef MUSTER_LAUNCHER_CLI_PROGRAM_WORDS_H
#define MUSTER_LAUNCHER_CLI_PROGRAM_WORDS_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>

enum { PROGRAM_WORDS = 3, PROGRAM_TASKS = 48 };

struct program_words {
	char *list[PROGRAM_WORDS]; /* owned */
	int n;
};

/* argv: PROGRAM ARGUMENT … up to NULL. file: whether there is a job file. ERR_USAGE: there is no
 * program. */
int command_program_words(char *const *argv, bool file, struct program_words *out, struct err *e);
void command_program_words_free(struct program_words *w);

/* The word for so many tasks in a job with these degrees. tasks: the value of -n. ERR_USAGE: it is no
 * number, or the degrees do not divide it. */
int command_program_tasks(const char *tasks, const struct job *job, char out[PROGRAM_TASKS],
			  struct err *e);

/* The name of a run of this program: "train" for `python3 -u train.py --lr 1`. */
void command_program_name(char *const *argv, char *out, int size);

#endif
