#include "agent/tools/rank_job.h"

#include "agent/boot.h"
#include "base/agent_env.h"
#include "libcomm/shm/futex.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHEET = 16 * 1024, FENCE_LOOK_NS = 100000000 };

/* The key-value pairs that one rank has put: "key\0value\0key\0value\0". */
struct sheet {
	size_t used;
	char text[SHEET];
	struct err error;
};

/* The board is in memory that all ranks share. Each sheet is written by one rank, and read by
 * others after a fence. */
struct board {
	int ranks;
	_Atomic uint32_t arrived, passed; /* counters of fences */
	_Atomic int first;                /* the first rank that failed, counted from 1; 0: none */
	struct sheet sheets[];
};

/* A rank's view of the board. */
struct seat {
	struct board *board;
	int rank;
	uint32_t fences;
};

/* --- The board --- */

static struct board *board_open(int ranks, struct err *e)
{
	size_t size = sizeof(struct board) + (size_t)ranks * sizeof(struct sheet);
	struct board *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			       0);
	if (b == MAP_FAILED) {
		err_errno(e, ERR_NOMEM, "no memory for a board of %d ranks", ranks);
		return NULL;
	}
	b->ranks = ranks;
	return b;
}

static void board_close(struct board *b)
{
	munmap(b, sizeof *b + (size_t)b->ranks * sizeof(struct sheet));
}

static int seat_put(void *arg, const char *key, const char *value, struct err *e)
{
	struct seat *s = arg;
	struct sheet *mine = &s->board->sheets[s->rank];
	size_t k = strlen(key) + 1, v = strlen(value) + 1;
	if (k + v > SHEET - mine->used)
		return err_set(e, ERR_NOMEM,
			       "rank %d publishes more than %d bytes: there is no room for %s",
			       s->rank, SHEET, key);
	memcpy(mine->text + mine->used, key, k);
	memcpy(mine->text + mine->used + k, value, v);
	mine->used += k + v;
	return 0;
}

/* If a rank never arrives, it has died or failed. The parent then ends all other ranks, including
 * those that wait here. */
static int seat_fence(void *arg, struct err *e)
{
	struct seat *s = arg;
	struct board *b = s->board;
	(void)e;
	s->fences++;
	if (atomic_fetch_add(&b->arrived, 1) + 1 == s->fences * (uint32_t)b->ranks) {
		atomic_store(&b->passed, s->fences);
		futex_wake_all(&b->passed);
	}
	while (atomic_load(&b->passed) < s->fences)
		futex_wait(&b->passed, s->fences - 1, FENCE_LOOK_NS);
	return 0;
}

static int seat_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct seat *s = arg;
	const struct sheet *from = &s->board->sheets[rank];
	for (size_t at = 0; at < from->used;) {
		const char *name = from->text + at, *text = name + strlen(name) + 1;
		if (!strcmp(name, key)) {
			char *copy = strdup(text);
			if (!copy)
				return err_set(e, ERR_NOMEM, "no memory for %s of rank %d", key,
					       rank);
			*value = copy;
			return 0;
		}
		at = (size_t)(text + strlen(text) + 1 - from->text);
	}
	return err_set(e, ERR_NOTFOUND, "rank %d did not put %s", rank, key);
}

static struct comm_bootstrap seat_bootstrap(struct seat *s)
{
	return (struct comm_bootstrap){ .rank = s->rank,
					.size = s->board->ranks,
					.put = seat_put,
					.fence = seat_fence,
					.get = seat_get,
					.arg = s };
}

/* --- A rank --- */

static int rank_work(const struct rank_job *job, struct board *b, int rank, struct err *e)
{
	struct seat seat = { .board = b, .rank = rank };
	struct comm_bootstrap boot = seat_bootstrap(&seat);
	struct comm_options opt = job->comm;
	struct comm *world;
	char host[32];
	snprintf(host, sizeof host, "host%d", job->hosts ? job->hosts[rank] : 0);
	opt.host = host;
	if (comm_open(&boot, &opt, &world, e))
		return -1;
	int rc = job->work(world, job->arg, e);
	comm_close(world);
	return rc;
}

static _Noreturn void rank_main(const struct rank_job *job, struct board *b, int rank, pid_t parent)
{
	struct err e = ERR_INIT;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	int rc = rank_work(job, b, rank, &e);
	int nobody = 0;
	b->sheets[rank].error = e;
	if (rc)
		atomic_compare_exchange_strong(&b->first, &nobody, rank + 1);
	fflush(NULL);
	_exit(rc ? 1 : 0);
}

/* --- The parent --- */

struct watch {
	pid_t pids[RANK_JOB_MAX];
	int started, left;
	int bad, status; /* the rank whose failure counts (-1: none), and its status */
};

static void kill_ranks(struct watch *w)
{
	for (int i = 0; i < w->started; i++)
		if (w->pids[i])
			kill(w->pids[i], SIGKILL);
}

/* Waits for one rank to end. A rank that was killed by a signal takes precedence, because the
 * errors of the other ranks may only follow from its death. */
static bool reap_rank(struct watch *w, int flags)
{
	int status;
	pid_t pid = waitpid(-1, &status, flags);
	for (int i = 0; pid > 0 && i < w->started; i++) {
		if (w->pids[i] != pid)
			continue;
		w->pids[i] = 0;
		w->left--;
		if (status && (w->bad < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(w->status)))) {
			w->bad = i;
			w->status = status;
		}
	}
	return pid > 0;
}

static int start_ranks(const struct rank_job *job, struct board *b, struct watch *w, struct err *e)
{
	pid_t parent = getpid();
	fflush(NULL);
	for (; w->started < job->ranks; w->started++) {
		pid_t pid = fork();
		if (pid == 0)
			rank_main(job, b, w->started, parent);
		if (pid < 0)
			return err_errno(e, ERR_NOMEM, "cannot start rank %d of %d", w->started,
					 job->ranks);
		w->pids[w->started] = pid;
		w->left++;
	}
	return 0;
}

/* A rank received SIGPIPE because the reader of its output has exited (for example `head`). This is
 * no failure; this process ends with the same signal, as if it had printed itself. */
static void follow_broken_pipe(const struct watch *w)
{
	if (w->bad < 0 || !WIFSIGNALED(w->status) || WTERMSIG(w->status) != SIGPIPE)
		return;
	signal(SIGPIPE, SIG_DFL);
	raise(SIGPIPE);
}

static int report_failure(const struct watch *w, const struct board *b, struct err *e)
{
	if (w->bad < 0)
		return 0;
	if (WIFSIGNALED(w->status))
		return err_set(e, ERR_PEER, "rank %d was killed by signal %d (%s)%s", w->bad,
			       WTERMSIG(w->status), strsignal(WTERMSIG(w->status)),
			       WTERMSIG(w->status) == SIGKILL
				       ? "; dmesg shows whether memory ran out"
				       : "");
	const struct err *first = b->first ? &b->sheets[b->first - 1].error : NULL;
	if (first)
		return err_set(e, first->code, "%s", first->text);
	return err_set(e, ERR_INTERNAL, "rank %d exited with status %d and reported no error",
		       w->bad, WEXITSTATUS(w->status));
}

int tool_rank_job_fork(const struct rank_job *job, struct err *e)
{
	struct watch w = { .bad = -1 };
	if (job->ranks < 1 || job->ranks > RANK_JOB_MAX)
		return err_set(e, ERR_USAGE, "%d ranks: this host takes 1 to %d", job->ranks,
			       RANK_JOB_MAX);
	struct board *b = board_open(job->ranks, e);
	if (!b)
		return -1;
	signal(SIGCHLD, SIG_DFL); /* SIG_IGN would hide exit statuses */
	int rc = start_ranks(job, b, &w, e);
	while (!rc && w.left && w.bad < 0)
		reap_rank(&w, 0);
	while (w.left && reap_rank(&w, WNOHANG))
		;
	kill_ranks(&w);
	struct watch ours = w; /* ranks killed here did not fail */
	while (w.left)
		reap_rank(&w, 0);
	follow_broken_pipe(&ours);
	if (!rc)
		rc = report_failure(&ours, b, e);
	board_close(b);
	return rc;
}

/* --- A launcher's job step --- */

bool tool_rank_job_launched(void)
{
	return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE");
}

bool tool_rank_job_prints(void)
{
	return !tool_rank_job_launched() || !strcmp(getenv("PMIX_RANK"), "0");
}

/* All ranks have a secret from the launcher, so that a process that can reach Slurm's PMIx server
 * cannot join the world without it. */
static int share_secret(struct boot *boot, struct err *e)
{
	char *secret = agent_boot_take_env(AGENT_ENV_SECRET);
	if (!secret)
		return err_set(e, ERR_USAGE,
			       AGENT_ENV_SECRET
			       " is not in the environment: the ranks have no secret in common; "
			       "call `muster bench comm` once in the allocation; it starts its own "
			       "job step");
	int rc = agent_boot_seal(boot, secret, 0, e);
	explicit_bzero(secret, strlen(secret));
	free(secret);
	return rc;
}

int tool_rank_job_join(const struct rank_job *job, struct err *e)
{
	struct boot *boot;
	struct comm *world;
	char host[BOOT_HOST], address[NET_ADDR_MAX];
	if (agent_boot_open(&boot, e))
		return -1;
	if (share_secret(boot, e)) {
		agent_boot_finish(boot);
		return -1;
	}
	struct comm_options opt = job->comm;
	agent_boot_host(host);
	opt.host = host;
	opt.address_hint = agent_boot_address(address) ? address : NULL;
	int rc = comm_open(agent_boot_bootstrap(boot), &opt, &world, e);
	agent_boot_finish(boot);
	if (rc)
		return -1;
	rc = job->work(world, job->arg, e);
	comm_close(world);
	return rc;
}
