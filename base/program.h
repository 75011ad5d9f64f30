/*
 * program — executes a program of PATH in a child process.
 *
 * After fork in a process with several threads, a child may call async-signal-safe functions only.
 * execvp and execvpe are not: they read PATH and take memory. program_open does this before the
 * fork, and the child calls program_execute, which then does what execvpe does: it tries the
 * folders of PATH in their order, and gives a file that the kernel cannot execute to /bin/sh.
 */
#ifndef MUSTER_BASE_PROGRAM_H
#define MUSTER_BASE_PROGRAM_H

struct program {
	char **paths;  /* the files to try; then NULL */
	char **script; /* the arguments of /bin/sh for such a file */
};

/* Before the fork. The name is argv[0]; one with a slash is the path of the file. The arguments
 * must exist until program_close. -1: no memory. */
int program_open(struct program *p, char *const *argv);
/* In the child. Returns only if the program cannot be executed; errno is the cause, such as ENOENT
 * or EACCES. Async-signal-safe. */
void program_execute(const struct program *p, char *const *argv, char *const *env);
/* In the parent. */
void program_close(struct program *p);

#endif
