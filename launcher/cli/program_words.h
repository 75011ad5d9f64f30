/*
 * program_words — `muster run [OPTION …] [JOB.ini] [section.key=value …] -- PROGRAM ARGUMENT …`: a
 * program on the command line becomes words for job_load().
 *
 *     -n N         parallel.dp = N / (tp × cp × pp): the number of tasks
 *     PROGRAM …    job.program, as base/words.h writes it
 *     the name     job.name, from the program's script, unless a word or a job file names the run
 *     device       job.device = cuda if this host or allocation has NVIDIA GPUs, unless a job file or a
 *                  word says what it is
 *
 * The words that a person has given come later, so they count.
 */
#ifndef MUSTER_LAUNCHER_CLI_PROGRAM_WORDS_H
#define MUSTER_LAUNCHER_CLI_PROGRAM_WORDS_H

#include "base/err.h"

#include <stdbool.h>

enum { PROGRAM_WORDS = 4 };

struct program_words {
	char *list[PROGRAM_WORDS]; /* owned */
	int n;
};

/* argv: PROGRAM ARGUMENT … up to NULL. tasks: the value of -n; NULL: none. file: whether there is a job
 * file. ERR_USAGE: there is no program, or -n is no number. */
int command_program_words(char *const *argv, const char *tasks, bool file,
			  struct program_words *out, struct err *e);
void command_program_words_free(struct program_words *w);

/* The name of a run of this program: "train" for `python3 -u train.py --lr 1`. */
void command_program_name(char *const *argv, char *out, int size);

#endif
