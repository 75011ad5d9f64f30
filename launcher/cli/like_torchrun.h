/*
 * like_torchrun — a job file out of a command line of torchrun.
 *
 * The file begins with the command line and what became of each option (torchrun_options.h), as
 * comments, so a person can see what to adapt. It has only the keys that the line decides; where
 * torchrun's default differs from muster's, a note says so.
 */
#ifndef MUSTER_LAUNCHER_CLI_LIKE_TORCHRUN_H
#define MUSTER_LAUNCHER_CLI_LIKE_TORCHRUN_H

#include "base/buf.h"
#include "base/err.h"

/* Appends the job file to `job`, and lines for the person who typed the command to `notes`. argv: as
 * command_torchrun_read() takes it. */
int command_torchrun_job(char *const *argv, struct buf *job, struct buf *notes, struct err *e);

/* `muster run --like-torchrun ARG...`: argv[0] is "run" and the command line begins at argv[1]. Prints
 * the job file on stdout and the notes on stderr; returns the exit status. */
int command_like_torchrun(int argc, char **argv);

#endif
