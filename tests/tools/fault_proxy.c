/*
 * fault_proxy — carries the TCP connections of a run and disturbs them.
 *
 *     fault_proxy SOCKET SEED CLASS SPAN FAULTS ACTIONS
 *
 * The processes of the run have tests/doubles/through_proxy.so preloaded. It asks at the Unix
 * socket SOCKET for a route to each address. The first bytes of a connection show its class:
 * "MUSTER2" begins a control channel, and "MUSTCOM" a connection of libcomm (data, and out-of-band
 * notes). All other connections pass undisturbed.
 *
 *     CLASS    control, data or both: the connections that are disturbed
 *     SPAN     each fault strikes one of the first SPAN bytes that all of these connections carry
 *              together, in both directions
 *     FAULTS   the number of faults
 *     ACTIONS  letters, one of which is drawn for each fault: x drops 1 to 4096 bytes, d duplicates
 *              1 to 4096 bytes, f flips a bit, w waits 5 to 300 ms, s stops: all later bytes are
 *              held back until the connection ends
 *
 * All draws come from SEED. The proxy prints a line for each fault when it strikes. When SIGTERM
 * ends it, it prints how many bytes each class has carried. The run decides the order in which
 * connections send. A seed therefore gives the same faults, but not always the same byte of the
 * same message.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FAULTS_MAX = 32, CONNECTIONS_MAX = 400, CHUNK = 65536, MAGIC = 7 };
enum class { UNKNOWN, CONTROL, DATA, OTHER };

static const char *const class_words[] = { "unknown", "control", "data", "other" };

struct fault {
	uint64_t at; /* the byte */
	char action;
	unsigned amount; /* bytes, bit or milliseconds */
	bool struck;
};

/* One direction of a connection. */
struct way {
	int from, to;
	char *held; /* read, not written yet */
	size_t len, room;
	unsigned drop; /* bytes that are still to be dropped */
	int64_t until; /* nothing is written before this time; milliseconds */
	bool stopped, ended, shut;
};

struct connection {
	int number;
	enum class class;
	char magic[MAGIC];
	size_t known;
	int listener; /* of a connection that has not come yet, otherwise -1 */
	int target;
	struct way way[2]; /* 0: from the end that connected */
};

static struct connection *connections[CONNECTIONS_MAX];
static int count, made;
static struct fault faults[FAULTS_MAX];
static int n_faults;
static uint64_t carried[4];
static bool disturbed[4];
static volatile sig_atomic_t over;

static void on_term(int sig)
{
	(void)sig;
	over = 1;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void draw_faults(uint64_t seed, uint64_t span, int n, const char *actions)
{
	n_faults = n < FAULTS_MAX ? n : FAULTS_MAX;
	for (int i = 0; i < n_faults; i++) {
		struct fault *f = &faults[i];
		f->at = draw(&seed) % span;
		f->action = actions[draw(&seed) % strlen(actions)];
		uint64_t r = draw(&seed);
		f->amount = f->action == 'f'   ? r % 8
			    : f->action == 'w' ? 5 + r % 296
					       : 1u << r % 13;
	}
}

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* --- Connections --- */

static int connect_to(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof *to)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int listen_here(in_port_t *port)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof here;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&here, len) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&here, &len))
		die("fault_proxy: listen");
	*port = here.sin_port;
	return fd;
}

/* Serves a process that asks for a route to an address. */
static void serve_request(int server)
{
	struct sockaddr_in to;
	in_port_t port = 0;
	int fd = accept(server, NULL, NULL);
	if (fd < 0)
		return;
	if (recv(fd, &to, sizeof to, MSG_WAITALL) == sizeof to && count < CONNECTIONS_MAX) {
		int target = connect_to(&to);
		struct connection *c = target < 0 ? NULL : calloc(1, sizeof *c);
		if (c) {
			*c = (struct connection){ .number = made++,
						  .target = target,
						  .listener = listen_here(&port) };
			connections[count++] = c;
		}
	}
	if (write(fd, &port, sizeof port) != sizeof port)
		perror("fault_proxy: answer");
	close(fd);
}

static void meet(struct connection *c)
{
	int fd = accept(c->listener, NULL, NULL);
	if (fd < 0)
		return;
	close(c->listener);
	c->listener = -1;
	c->way[0] = (struct way){ .from = fd, .to = c->target };
	c->way[1] = (struct way){ .from = c->target, .to = fd };
}

static void end_connection(int i)
{
	struct connection *c = connections[i];
	if (c->listener >= 0)
		close(c->listener);
	else
		close(c->way[0].from);
	close(c->target);
	free(c->way[0].held);
	free(c->way[1].held);
	free(c);
	connections[i] = connections[--count];
}

/* --- Bytes --- */

static void hold(struct way *w, const char *data, size_t n)
{
	if (w->len + n > w->room) {
		w->room = 2 * (w->len + n);
		w->held = realloc(w->held, w->room);
		if (!w->held)
			die("fault_proxy");
	}
	memcpy(w->held + w->len, data, n);
	w->len += n;
}

static void flush(struct way *w)
{
	while (w->len && now_ms() >= w->until) {
		ssize_t n = send(w->to, w->held, w->len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			w->len = 0;
			w->ended = true;
			return;
		}
		memmove(w->held, w->held + n, w->len -= (size_t)n);
	}
}

static void strike(struct connection *c, struct way *w, const struct fault *f, char *at,
		   size_t left)
{
	size_t n = f->amount < left ? f->amount : left;
	printf("fault %c amount %u at byte %llu: %s connection %d, %s\n", f->action, f->amount,
	       (unsigned long long)f->at, class_words[c->class], c->number,
	       w == &c->way[0] ? "from who connected" : "to who connected");
	fflush(stdout);
	switch (f->action) {
	case 'f':
		*at = (char)(*at ^ 1 << f->amount);
		break;
	case 'x':
		w->drop = f->amount;
		break;
	case 'd':
		hold(w, at, n);
		break;
	case 'w':
		flush(w);
		w->until = now_ms() + f->amount;
		break;
	case 's':
		flush(w);
		w->stopped = true;
		break;
	}
}

/* Applies the faults that strike among the next n bytes, in their order, and passes the bytes. */
static void pass(struct connection *c, struct way *w, char *data, size_t n)
{
	uint64_t *total = &carried[c->class], base = *total;
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; disturbed[c->class] && k < n_faults; k++) {
			if (faults[k].struck || faults[k].at != base + i)
				continue;
			faults[k].struck = true;
			strike(c, w, &faults[k], data + i, n - i);
		}
		if (w->drop)
			w->drop--;
		else if (!w->stopped)
			hold(w, data + i, 1);
	}
	*total = base + n;
}

/* Determines the class from the first bytes of the end that connected. */
static void learn(struct connection *c, const char *data, size_t n)
{
	size_t take = n < MAGIC - c->known ? n : MAGIC - c->known;
	memcpy(c->magic + c->known, data, take);
	c->known += take;
	c->class = c->known < MAGIC                      ? UNKNOWN
		   : !memcmp(c->magic, "MUSTER2", MAGIC) ? CONTROL
		   : !memcmp(c->magic, "MUSTCOM", MAGIC) ? DATA
							 : OTHER;
}

static void carry(struct connection *c, int which)
{
	static char chunk[CHUNK];
	struct way *w = &c->way[which];
	ssize_t n = recv(w->from, chunk, sizeof chunk, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		w->ended = true;
		return;
	}
	if (which == 0 && c->class == UNKNOWN)
		learn(c, chunk, (size_t)n);
	pass(c, w, chunk, (size_t)n);
	flush(w);
}

/* The end of a direction is passed on once all its earlier bytes have been. */
static bool finish_ways(struct connection *c)
{
	for (int k = 0; k < 2; k++) {
		struct way *w = &c->way[k];
		flush(w);
		if (w->ended && !w->len && !w->shut) {
			shutdown(w->to, SHUT_WR);
			w->shut = true;
		}
	}
	return c->way[0].shut && c->way[1].shut;
}

/* --- The loop --- */

static void turn(int server)
{
	struct pollfd p[1 + 2 * CONNECTIONS_MAX];
	int n = 0, ms = 100; /* an upper limit: SIGTERM may have come just before */
	p[n++] = (struct pollfd){ .fd = server, .events = POLLIN };
	for (int i = 0; i < count; i++) {
		const struct connection *c = connections[i];
		for (int k = 0; k < 2; k++) {
			const struct way *w = &c->way[k], *back = &c->way[!k];
			int fd = c->listener >= 0 ? (k ? -1 : c->listener) : w->from;
			bool room = w->len < 4 * CHUNK && !w->ended;
			int events = (c->listener >= 0 || room ? POLLIN : 0) |
				     (back->len && now_ms() >= back->until ? POLLOUT : 0);
			p[n++] = (struct pollfd){ .fd = events ? fd : -1, .events = (short)events };
			int64_t wait = c->listener < 0 && w->len ? w->until - now_ms() : -1;
			if (wait >= 0 && wait < ms)
				ms = (int)wait + 1;
		}
	}
	if (poll(p, (nfds_t)n, ms) < 0)
		return;
	int had = count;
	for (int i = had - 1; i >= 0; i--) {
		struct connection *c = connections[i];
		if (c->listener >= 0) {
			if (p[1 + 2 * i].revents)
				meet(c);
			continue;
		}
		for (int k = 0; k < 2; k++)
			if (p[1 + 2 * i + k].revents & (POLLIN | POLLHUP | POLLERR) &&
			    !c->way[k].ended)
				carry(c, k);
		if (finish_ways(c))
			end_connection(i);
	}
	if (p[0].revents)
		serve_request(server);
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr,
			"usage: fault_proxy SOCKET SEED control|data|both SPAN FAULTS ACTIONS\n");
		return 2;
	}
	struct sockaddr_un here = { .sun_family = AF_UNIX };
	snprintf(here.sun_path, sizeof here.sun_path, "%s", argv[1]);
	disturbed[CONTROL] = strcmp(argv[3], "data") != 0;
	disturbed[DATA] = strcmp(argv[3], "control") != 0;
	uint64_t span = strtoull(argv[4], NULL, 10);
	draw_faults(strtoull(argv[2], NULL, 10), span ? span : 1, atoi(argv[5]), argv[6]);
	struct sigaction term = { .sa_handler = on_term };
	sigaction(SIGTERM, &term, NULL);
	signal(SIGPIPE, SIG_IGN);
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (server < 0 || bind(server, (struct sockaddr *)&here, sizeof here) || listen(server, 64))
		die("fault_proxy: SOCKET");
	printf("ready\n");
	fflush(stdout);
	while (!over)
		turn(server);
	unlink(here.sun_path);
	printf("carried control %llu data %llu other %llu\n", (unsigned long long)carried[CONTROL],
	       (unsigned long long)carried[DATA], (unsigned long long)carried[OTHER]);
	return 0;
}
