/*
 * muster_client.h — a training program in C or C++ that muster started tells muster what it does,
 * and asks when to stop. muster_client.py does the same for Python.
 *
 *     struct muster_number numbers[] = { { "loss", loss }, { "tokens", tokens } };
 *     muster_step(step, numbers, 2);
 *     if (muster_should_stop())
 *             break;
 *
 * The header is all there is: it needs POSIX, C99 or C++, and gcc or clang. Several source files of
 * a program may include it; they share one state.
 *
 * If muster did not start the program, every call does nothing. If muster is lost, or does not read,
 * the calls go on without it: none waits, none ends the program, and none changes errno. They may come
 * from every thread, but not from a signal handler. Only the process that calls first speaks to muster;
 * in the processes that it forks, the calls do nothing.
 *
 * The protocol, version 1
 *
 * The variable MUSTER_CLIENT_FD holds the number of a descriptor that the program inherits: an AF_UNIX
 * socket of type SOCK_SEQPACKET, connected to muster. One packet is one JSON object in UTF-8, of at
 * most 16384 bytes. Both sides ignore members that they do not know. Nobody answers a packet.
 *
 * From the program, one member per packet:
 *
 *     {"hello": {"version": 1, "pid": 4711}}
 *             The first packet: the version of the protocol, and the process that speaks.
 *     {"step": {"n": 501, "loss": 2.19, "tokens": 65536, "samples": 32, "lr": 1e-4, "grad_norm": 0.8}}
 *             n: the finished steps of the whole run, from 1; after a resume from step 500 the first
 *             is 501. tokens, samples: integers, those of the whole step on all ranks together. Each
 *             member but n may be absent. A number that is not finite is a string, because JSON has
 *             none: "nan", "inf" or "-inf". A sender that finds the socket full keeps its last step
 *             and sends it later, so numbers may be missing between two steps.
 *     {"checkpoint": {"path": "/scratch/run/step-500", "step": 500}}
 *             A complete checkpoint holds the state after that step. path: absolute, or a URL; at
 *             most 4095 bytes.
 *
 * From muster:
 *
 *     {"stop": {"reason": "the time limit is near", "at_step": 510}}
 *             All ranks are to stop after the same step: this one, once its last step is at least
 *             at_step. Without at_step, or in a program that has reported no step: at once. A later
 *             stop replaces an earlier one, unless the program has already been told to stop.
 *
 * The variable MUSTER_PLAN holds a JSON object, the place of this rank in the run: its coordinates, its
 * node and its device.
 */
#ifndef MUSTER_CLIENT_H
#define MUSTER_CLIENT_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number of a step. muster uses those with the names loss, tokens, samples, lr and grad_norm. A
 * name consists of letters, digits and underscores; a number with any other name is left out. */
struct muster_number {
	const char *name;
	double value; /* NaN and infinity are sent, too */
};

/* To be called after each finished step n, from 1, by every rank. A rank that does not know a number
 * leaves it out; numbers may be NULL if count is 0. */
static inline void muster_step(long long n, const struct muster_number *numbers, int count);
/* To be called when a checkpoint is complete; step: the finished steps that it holds. */
static inline void muster_checkpoint_saved(const char *path, long long step);
/* 1: the program is to end now, after this step. All ranks get 1 after the same step. Otherwise 0. When
 * Slurm takes the nodes of a job, it sends SIGTERM to each process. So that the program can save first, the
 * first call makes it survive that signal, unless it has a handler of its own. Its children do not. A
 * program that is compiled by -std=c99 without _POSIX_C_SOURCE does not survive it. */
static inline int muster_should_stop(void);
/* The JSON text of MUSTER_PLAN; NULL without muster. */
static inline const char *muster_plan(void);

/* --- All that follows is not for programs -------------------------------------------------- */

enum {
	MUSTER_CLIENT_VERSION = 1,
	MUSTER_CLIENT_PACKET = 16384, /* bytes, at most */
	MUSTER_CLIENT_PATH = 4095,
	MUSTER_CLIENT_READS = 16 /* packets in one call, at most */
};

/* What is not sent yet, in the order of sending. */
enum muster_client_kind {
	MUSTER_CLIENT_HELLO,
	MUSTER_CLIENT_STEP,
	MUSTER_CLIENT_CHECKPOINT,
	MUSTER_CLIENT_KINDS
};

struct muster_client_text {
	size_t len; /* 0: nothing is to be sent */
	int failed; /* the text did not fit */
	char data[MUSTER_CLIENT_PACKET];
};

struct muster_client_state {
	pthread_mutex_t lock;
	pid_t pid;          /* of the process that called first; 0: none has */
	int fd;             /* -1: no muster, or it is lost */
	int found;          /* muster was there at the first call */
	long long step;     /* the last one; 0: none */
	long long stop_at;  /* the step of the last stop; -1: at once */
	int asked, stopped; /* there was a stop; the program has been told to stop */
	int held;           /* SIGTERM was looked at */
	struct muster_client_text kept[MUSTER_CLIENT_KINDS];
};

/* One object for all source files and libraries of the program. */
__attribute__((weak, visibility("default"))) struct muster_client_state muster_client_state = {
	PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, 0, 0, 0, 0, 0, { { 0, 0, { 0 } } }
};

static inline void muster_client_add(struct muster_client_text *t, const char *data, size_t len)
{
	if (t->failed || len > sizeof t->data - t->len) {
		t->failed = 1;
		return;
	}
	memcpy(t->data + t->len, data, len);
	t->len += len;
}

static inline void muster_client_puts(struct muster_client_text *t, const char *text)
{
	muster_client_add(t, text, strlen(text));
}

static inline void muster_client_put_integer(struct muster_client_text *t, long long value)
{
	char digits[32];
	snprintf(digits, sizeof digits, "%lld", value);
	muster_client_puts(t, digits);
}

/* Looks at the bits, because -ffast-math takes isnan() for false. */
static inline const char *muster_client_not_finite(double value)
{
	unsigned long long bits;
	memcpy(&bits, &value, sizeof bits);
	if ((bits >> 52 & 0x7ff) != 0x7ff)
		return NULL;
	if (bits << 12)
		return "\"nan\"";
	return bits >> 63 ? "\"-inf\"" : "\"inf\"";
}

/* Integers are written without a point. The locale may have another decimal point than JSON. */
static inline void muster_client_put_number(struct muster_client_text *t, double value)
{
	char digits[64];
	const double exact = 9007199254740992.0; /* 2^53 */
	const char *word = muster_client_not_finite(value);
	size_t i, n = 0;
	if (word) {
		muster_client_puts(t, word);
		return;
	}
	if (value > -exact && value < exact && value == (double)(long long)value) {
		muster_client_put_integer(t, (long long)value);
		return;
	}
	snprintf(digits, sizeof digits, "%.17g", value);
	for (i = 0; digits[i]; i++)
		if (strchr("0123456789+-e", digits[i]))
			digits[n++] = digits[i];
		else if (n && digits[n - 1] != '.')
			digits[n++] = '.';
	muster_client_add(t, digits, n);
}

/* The bytes of the UTF-8 character at p; 0: it is none. */
static inline size_t muster_client_utf8(const unsigned char *p)
{
	size_t i, n = *p < 0x80                 ? 1
		      : *p >= 0xc2 && *p < 0xe0 ? 2
		      : *p >= 0xe0 && *p < 0xf0 ? 3
		      : *p >= 0xf0 && *p < 0xf5 ? 4
						: 0;
	for (i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
	    (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* The text without its quotes. A byte that is not UTF-8 becomes a question mark. */
static inline void muster_client_put_text(struct muster_client_text *t, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	char code[8];
	while (*p) {
		size_t n = muster_client_utf8(p);
		if (*p == '"' || *p == '\\' || *p < 0x20) {
			snprintf(code, sizeof code, "\\u%04x", *p);
			muster_client_puts(t, code);
		} else if (n) {
			muster_client_add(t, (const char *)p, n);
		} else {
			muster_client_puts(t, "?");
		}
		p += n ? n : 1;
	}
}

/* Begins a packet of this kind; one that was not sent is lost. */
static inline struct muster_client_text *muster_client_begin(enum muster_client_kind kind)
{
	struct muster_client_text *t = &muster_client_state.kept[kind];
	t->len = 0;
	t->failed = 0;
	return t;
}

static inline void muster_client_end(struct muster_client_text *t)
{
	muster_client_puts(t, "}}");
	if (t->failed)
		t->len = 0;
}

/* The descriptor of MUSTER_CLIENT_FD, if it is what muster passes; otherwise -1: a process may inherit
 * the variable without the descriptor, and use its number for another file. */
static inline int muster_client_descriptor(void)
{
	const char *text = getenv("MUSTER_CLIENT_FD");
	struct sockaddr_storage name;
	socklen_t size = sizeof name, type_size = sizeof(int);
	int type = 0;
	char *end;
	long fd;
	if (!text || *text < '0' || *text > '9')
		return -1;
	fd = strtol(text, &end, 10);
	if (*end || fd > 0x7fffffff)
		return -1;
	if (getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_SEQPACKET)
		return -1;
	if (getsockname((int)fd, (struct sockaddr *)&name, &size) || name.ss_family != AF_UNIX)
		return -1;
	fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	return (int)fd;
}

static inline void muster_client_open(void)
{
	struct muster_client_state *s = &muster_client_state;
	struct muster_client_text *t;
	s->fd = muster_client_descriptor();
	s->found = s->fd >= 0;
	t = muster_client_begin(MUSTER_CLIENT_HELLO);
	muster_client_puts(t, "{\"hello\":{\"version\":");
	muster_client_put_integer(t, MUSTER_CLIENT_VERSION);
	muster_client_puts(t, ",\"pid\":");
	muster_client_put_integer(t, getpid());
	muster_client_end(t);
	__atomic_store_n(&s->pid, getpid(), __ATOMIC_RELEASE);
}

/* Locks the state. 0: this process was forked from the one that speaks to muster. */
static inline int muster_client_enter(void)
{
	struct muster_client_state *s = &muster_client_state;
	pid_t owner = __atomic_load_n(&s->pid, __ATOMIC_ACQUIRE);
	if (owner && owner != getpid())
		return 0;
	pthread_mutex_lock(&s->lock);
	if (!s->pid)
		muster_client_open();
	return 1;
}

static inline void muster_client_leave(void)
{
	pthread_mutex_unlock(&muster_client_state.lock);
}

/* The socket is full or empty, and not broken. */
static inline int muster_client_again(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS ||
	       error == ENOMEM;
}

/* Sends what is to be sent, as far as the socket has room. */
static inline void muster_client_flush(void)
{
	struct muster_client_state *s = &muster_client_state;
	int kind;
	for (kind = 0; kind < MUSTER_CLIENT_KINDS && s->fd >= 0; kind++) {
		struct muster_client_text *t = &s->kept[kind];
		if (t->len && send(s->fd, t->data, t->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			if (muster_client_again(errno))
				return;
			s->fd = -1;
		}
		t->len = 0;
	}
}

/* The value of a member of the object at p, which ends with a NUL byte; NULL: it has no such
 * member. */
static inline const char *muster_client_member(const char *p, const char *name)
{
	const char *begin, *blanks = " \t\r\n";
	int depth = 0;
	for (; *p; p++) {
		if (*p == '{' || *p == '[')
			depth++;
		if ((*p == '}' || *p == ']') && --depth <= 0)
			return NULL;
		if (*p != '"')
			continue;
		for (begin = ++p; *p != '"'; p++)
			if (!*p || (*p == '\\' && !*++p))
				return NULL;
		if (depth != 1 || (size_t)(p - begin) != strlen(name) ||
		    memcmp(begin, name, strlen(name)) != 0)
			continue;
		begin = p + 1 + strspn(p + 1, blanks);
		if (*begin == ':')
			return begin + 1 + strspn(begin + 1, blanks);
	}
	return NULL;
}

static inline void muster_client_take(const char *packet)
{
	struct muster_client_state *s = &muster_client_state;
	const char *stop = *packet == '{' ? muster_client_member(packet, "stop") : NULL, *at;
	if (!stop || *stop != '{')
		return;
	at = muster_client_member(stop, "at_step");
	s->stop_at = at && *at >= '0' && *at <= '9' ? strtoll(at, NULL, 10) : -1;
	s->asked = 1;
}

static inline void muster_client_receive(void)
{
	struct muster_client_state *s = &muster_client_state;
	char packet[MUSTER_CLIENT_PACKET + 1];
	int i;
	for (i = 0; i < MUSTER_CLIENT_READS && s->fd >= 0; i++) {
		ssize_t n = recv(s->fd, packet, sizeof packet - 1, MSG_DONTWAIT);
		if (n < 0 && muster_client_again(errno))
			return;
		if (n <= 0) {
			s->fd = -1;
			return;
		}
		packet[n] = '\0';
		muster_client_take(packet);
	}
}

static inline int muster_client_named(const char *name)
{
	return name && *name && strcmp(name, "n") != 0 &&
	       !name[strspn(name,
			    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

static inline void muster_step(long long n, const struct muster_number *numbers, int count)
{
	struct muster_client_text *t;
	int i, error = errno;
	if (n < 1 || !muster_client_enter())
		return;
	muster_client_state.step = n;
	t = muster_client_begin(MUSTER_CLIENT_STEP);
	muster_client_puts(t, "{\"step\":{\"n\":");
	muster_client_put_integer(t, n);
	for (i = 0; i < count; i++) {
		if (!muster_client_named(numbers[i].name))
			continue;
		muster_client_puts(t, ",\"");
		muster_client_puts(t, numbers[i].name);
		muster_client_puts(t, "\":");
		muster_client_put_number(t, numbers[i].value);
	}
	muster_client_end(t);
	muster_client_flush();
	muster_client_leave();
	errno = error;
}

static inline void muster_checkpoint_saved(const char *path, long long step)
{
	struct muster_client_text *t;
	char folder[4096];
	int error = errno;
	if (!path || !*path || strlen(path) > MUSTER_CLIENT_PATH || step < 0 ||
	    !muster_client_enter())
		return;
	t = muster_client_begin(MUSTER_CLIENT_CHECKPOINT);
	muster_client_puts(t, "{\"checkpoint\":{\"path\":\"");
	if (*path != '/' && !strstr(path, "://") && getcwd(folder, sizeof folder)) {
		muster_client_put_text(t, folder);
		muster_client_puts(t, "/");
	}
	muster_client_put_text(t, path);
	muster_client_puts(t, "\",\"step\":");
	muster_client_put_integer(t, step);
	muster_client_end(t);
	muster_client_flush();
	muster_client_leave();
	errno = error;
}

#ifdef SA_RESTART
/* The handler of SIGTERM of a program that asks muster_should_stop(). */
static inline void muster_client_let_pass(int number)
{
	(void)number;
}

static inline int muster_client_sigterm_is(void (*handler)(int))
{
	struct sigaction now;
	return !sigaction(SIGTERM, NULL, &now) && !(now.sa_flags & SA_SIGINFO) &&
	       now.sa_handler == handler;
}

static inline void muster_client_restore_sigterm(void)
{
	if (muster_client_sigterm_is(muster_client_let_pass))
		signal(SIGTERM, SIG_DFL);
}

static inline void muster_client_hold_sigterm(void)
{
	struct sigaction pass;
	if (!muster_client_state.found || muster_client_state.held)
		return;
	muster_client_state.held = 1;
	if (!muster_client_sigterm_is(SIG_DFL))
		return;
	memset(&pass, 0, sizeof pass);
	sigemptyset(&pass.sa_mask);
	pass.sa_handler = muster_client_let_pass;
	pass.sa_flags = SA_RESTART;
	sigaction(SIGTERM, &pass, NULL);
	pthread_atfork(NULL, NULL, muster_client_restore_sigterm);
}
#else /* compiled for C alone, without POSIX: there is no safe way to do it */
static inline void muster_client_hold_sigterm(void)
{
}
#endif

static inline int muster_should_stop(void)
{
	struct muster_client_state *s = &muster_client_state;
	int stopped, error = errno;
	if (!muster_client_enter())
		return 0;
	muster_client_hold_sigterm();
	muster_client_flush();
	muster_client_receive();
	if (s->asked && (!s->step || s->stop_at < 0 || s->step >= s->stop_at))
		s->stopped = 1;
	stopped = s->stopped;
	muster_client_leave();
	errno = error;
	return stopped;
}

static inline const char *muster_plan(void)
{
	int found, error = errno;
	/* A forked process may read the plan, too. */
	if (!muster_client_enter())
		return muster_client_state.found ? getenv("MUSTER_PLAN") : NULL;
	muster_client_flush();
	found = muster_client_state.found;
	muster_client_leave();
	errno = error;
	return found ? getenv("MUSTER_PLAN") : NULL;
}

#ifdef __cplusplus
}
#endif

#endif
