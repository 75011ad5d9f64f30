/*
 * process — a program of the user with all its processes: start, signal, end.
 *
 * A keeper (keeper.h) stands between the agent and the program. It ends whatever is left of the task
 * when the program, the agent or the keeper itself has ended, also what has left the program's
 * session. One thread uses a task_process, and no other thread of the agent waits for children that
 * it has not started (`waitpid(-1)`): after the keeper's death the rest of the task are children of
 * the agent. They are known by their session, so a process that the agent starts for other purposes
 * must stay in the agent's session.
 *
 * The program gets: the words of argv, without a shell, and the file of argv[0] from the PATH of
 * its own environment, as execvpe(3) finds it; the environment given, and MUSTER_CLIENT_FD with
 * it; the agent's working directory, CPUs and resource limits, which are the user's, because muster
 * lowers none (the launcher may have raised the soft limit of open files); the umask given; a
 * session and a process group of its own; signals with their default actions, none blocked; standard
 * input from /dev/null; no other descriptors than 0, 1, 2 and the client channel.
 */
#ifndef MUSTER_AGENT_TASK_PROCESS_H
#define MUSTER_AGENT_TASK_PROCESS_H

#include "agent/task/client.h"
#include "agent/task/tree.h"
#include "base/err.h"
#include "base/process_stat.h"

struct task_start {
	char *const *argv;
	char *const *env; /* MUSTER_CLIENT_FD in it does not count */
	int out, err;     /* become its standard output and error; the caller closes them */
	int client;       /* the same; -1: there is no client channel, nor MUSTER_CLIENT_FD */
	mode_t mask;      /* the user's umask (base/process.h) */
	double grace_s;   /* how long others may go on after the program has ended; 0.5 is usual */
	/* How long to wait until the program is executed, which a file system that hangs can delay.
	 * After that, task_process_poll() reports what came of it. */
	double patience_s;
};

struct task_end {
	int status;                   /* as waitpid(2) gives it */
	double user_s, system_s, rss; /* CPU time of the program and of the children that it has
				       * waited for; bytes, the most that one of them had */
};

/* What the program left behind. */
struct task_left {
	int killed;              /* processes that had to be killed */
	char name[PROCESS_NAME]; /* of the first, "" if there is none */
};

struct task_process;

/* Borrows everything in `start` during the call. Makes the agent a subreaper (prctl(2)). The program
 * cannot be executed: ERR_NOTFOUND or ERR_DENIED, ERR_NOMEM (processes, memory), ERR_USAGE (too many
 * words), ERR_UNSUPPORTED. The text names the job's key. */
int task_process_start(const struct task_start *start, struct task_process **out, struct err *e);

/* Readable when task_process_poll() has something to report. */
int task_process_fd(const struct task_process *p);
/* The program; 0: it is not executed yet. */
pid_t task_process_pid(const struct task_process *p);
/* The root of all processes of the task, for task_activity_open(). */
pid_t task_process_keeper(const struct task_process *p);

/* 1: the program has ended; 0: it runs. -1: it could not be executed, as for task_process_start(), or
 * ERR_TASK: the keeper was killed, and the whole task with it, so *end has SIGKILL as its status. Does not
 * block, except that after the keeper's death it ends what is left, which takes milliseconds. */
int task_process_poll(struct task_process *p, struct task_end *end, struct err *e);

/* To the process group of the program, as Slurm and torchrun do it, so that the processes of a shell
 * script get it too. Nothing happens after the program's end. */
void task_process_signal(struct task_process *p, int number);
/* SIGKILL to all processes of the task. */
void task_process_kill(struct task_process *p);

/* If the program runs, kills it. Then waits until nothing of the task is left, which takes at most the
 * grace and some seconds, and frees p. ERR_STUCK: processes are left that cannot be killed; the text
 * names one. `left` may be NULL. Takes NULL. */
int task_process_close(struct task_process *p, struct task_left *left, struct err *e);

#endif
