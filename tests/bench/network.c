/*
 * network — compares libcomm between two hosts with a plain loop of send(2) and recv(2),
 * alternating in one run.
 *
 * The hosts are network namespaces on one machine. usage: network [SOCKETS]
 *
 * It prints the rates of each round and the median of their ratios. It fails if the median is below
 * 0.85.
 */
#include "tests/unit/libcomm/network.h"
#include "tests/unit/libcomm/ranks.h"

#include "base/clock.h"
#include "base/net.h"

#include <poll.h>
#include <sys/socket.h>

enum { BLOCK = 64 << 20, BLOCKS = 8, ROUNDS = 5 };

static const double LEAST = 0.85;

struct shared {
	char address[NET_ADDR_MAX];
	_Atomic int ready;
	double rate; /* bytes per second, in the last measurement */
};

static struct network net;
static struct shared *shared;

static int enter_host(const struct ranks *r, int rank)
{
	return network_enter(&net, r->hosts[rank] - 'a');
}

/* --- Plain --- */

/* Sends and receives this many bytes at once; returns 0 or -1. */
static int stream(int fd, char *out, size_t to_send, char *in, size_t to_get)
{
	size_t put = 0, got = 0;
	while (put < to_send || got < to_get) {
		size_t at = put % BLOCK, to = got % BLOCK;
		ssize_t n = put < to_send
				    ? send(fd, out + at, BLOCK - at, MSG_DONTWAIT | MSG_NOSIGNAL)
				    : -1;
		ssize_t m = got < to_get ? recv(fd, in + to, BLOCK - to, MSG_DONTWAIT) : -1;
		if (m == 0)
			return -1;
		put += n > 0 ? (size_t)n : 0;
		got += m > 0 ? (size_t)m : 0;
		struct pollfd p = { .fd = fd,
				    .events = (short)((put < to_send ? POLLOUT : 0) |
						      (got < to_get ? POLLIN : 0)) };
		if (n < 0 && m < 0 && p.events)
			poll(&p, 1, -1);
	}
	return 0;
}

static int meet(int end)
{
	int fd = -1, listener;
	if (network_enter(&net, end) < 0)
		return -1;
	if (end == 1)
		return net_connect(shared->address, 10, &fd, NULL) < 0 ? -1 : fd;
	if (net_listen("10.77.0.1", &listener, shared->address, NULL) < 0)
		return -1;
	atomic_store(&shared->ready, 1);
	for (struct pollfd p = { .fd = listener, .events = POLLIN };
	     fd < 0 && poll(&p, 1, 10000) > 0;)
		net_accept(listener, &fd, NULL);
	return fd;
}

static int plain_end(int end, bool both)
{
	char *out = malloc(BLOCK), *in = malloc(BLOCK);
	int fd = meet(end);
	if (fd < 0 || !out || !in)
		return 1;
	memset(out, 1, BLOCK);
	memset(in, 1, BLOCK);
	size_t all = (size_t)BLOCK * BLOCKS;
	double since = clock_s();
	int rc = stream(fd, out, both || end == 0 ? all : 0, in, both || end == 1 ? all : 0);
	if (end == 1)
		shared->rate = (double)all / (clock_s() - since);
	return rc < 0;
}

static double plain(bool both)
{
	pid_t pid[2];
	int status, bad = 0;
	atomic_store(&shared->ready, 0);
	for (int end = 0; end < 2; end++) {
		pid[end] = fork();
		if (pid[end] == 0) {
			alarm(PATIENCE_S);
			_exit(plain_end(end, both));
		}
		while (end == 0 && !atomic_load(&shared->ready) &&
		       waitpid(pid[0], &status, WNOHANG) == 0)
			usleep(1000);
	}
	for (int end = 0; end < 2; end++)
		bad |= waitpid(pid[end], &status, 0) < 0 || status;
	return bad ? 0 : shared->rate;
}

/* --- libcomm --- */

static int turn(struct comm *w, bool both, char *data, struct err *e)
{
	if (both)
		return comm_all_gather(w, data + (size_t)comm_rank(w) * BLOCK, data, BLOCK, COMM_U8,
				       e);
	return comm_rank(w) == 0 ? comm_send(w, data, BLOCK, COMM_U8, 1, e)
				 : comm_recv(w, data, BLOCK, COMM_U8, 0, e);
}

static int rank_main(struct comm *w, void *arg)
{
	bool both = *(const bool *)arg;
	struct err e = ERR_INIT;
	char *data = malloc(2 * (size_t)BLOCK);
	RANK_CHECK(data, "no memory");
	memset(data, 1, 2 * (size_t)BLOCK);
	RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
	double since = clock_s();
	for (int i = 0; i < BLOCKS; i++)
		RANK_CHECK(turn(w, both, data, &e) == 0, "%s", e.text);
	if (comm_rank(w) == 1)
		shared->rate = (double)BLOCK * BLOCKS / (clock_s() - since);
	free(data);
	return 0;
}

static double ours(bool both, int sockets)
{
	struct ranks r = { .n = 2,
			   .hosts = "ab",
			   .interface = "net0",
			   .timeout_s = PATIENT_WAIT_S,
			   .sockets = sockets,
			   .fn = rank_main,
			   .arg = &both,
			   .enter = enter_host };
	return ranks_run(&r) ? 0 : shared->rate;
}

/* --- Side by side --- */

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static int compare(const char *what, bool both, int sockets)
{
	double ratio[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		double theirs = plain(both), mine = ours(both, sockets);
		if (theirs <= 0 || mine <= 0)
			return 1;
		ratio[i] = mine / theirs;
		printf("%-10s  plain %5.2f GB/s  libcomm %5.2f GB/s  ratio %.2f\n", what,
		       theirs * 1e-9, mine * 1e-9, ratio[i]);
	}
	qsort(ratio, ROUNDS, sizeof *ratio, by_value);
	printf("%-10s  median ratio %.2f, at least %.2f is due\n", what, ratio[ROUNDS / 2], LEAST);
	return ratio[ROUNDS / 2] < LEAST;
}

int main(int argc, char **argv)
{
	const char *why;
	shared = ranks_shared(sizeof *shared);
	if (!shared || network_open(&net, 2, &why) < 0) {
		fprintf(stderr, "network: %s\n", shared ? why : "no memory");
		return 3;
	}
	int sockets = argc > 1 ? atoi(argv[1]) : 0;
	int bad = compare("send/recv", false, sockets) | compare("all_gather", true, sockets);
	network_close(&net);
	return bad;
}
