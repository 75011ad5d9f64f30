#include "tests/bench/agents/stand_in.h"

#include "base/agent_env.h"
#include "base/clock.h"
#include "launcher/descriptors.h"
#include "tests/bench/agents/agents.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, CONNECTS_PER_TURN = 32, KILLED = SIGKILL, LEFT = 1 << 8 };

static void fail_with(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- connections ---------------------------------------------------------------------------- */

/* The agent's process is gone; wait status. */
static void end_agent(struct stand_in *s, struct agent *a, int status)
{
	close(a->fd);
	channel_close(a->channel);
	a->fd = -1;
	a->channel = NULL;
	s->left--;
	printf("%d %d\n", a->started_as, status);
}

static void watch(const struct stand_in *s, struct agent *a, int how, bool writing)
{
	struct epoll_event ev = { .events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = a };
	if (epoll_ctl(s->epoll, how, a->fd, &ev))
		fail_with("epoll_ctl");
	a->writing = writing;
}

/* Writes what is queued; after the last message it only reads. */
static void write_out(const struct stand_in *s, struct agent *a)
{
	struct buf *out = channel_out(a->channel);
	ssize_t n = 1;
	while (out->len && (n = send(a->fd, out->data, out->len, MSG_NOSIGNAL)) > 0)
		buf_drop(out, (size_t)n);
	if (n < 0 && errno != EAGAIN)
		buf_clear(out); /* the next read reports it */
	if ((out->len > 0) != a->writing)
		watch(s, a, EPOLL_CTL_MOD, out->len > 0);
	if (a->ends && !a->shut && !out->len) {
		shutdown(a->fd, SHUT_WR);
		a->shut = true;
	}
}

/* False: the connection is over. */
static bool read_messages(struct stand_in *s, struct agent *a)
{
	static char chunk[65536];
	struct err e = ERR_INIT;
	struct msg m = { 0 };
	ssize_t n = recv(a->fd, chunk, sizeof chunk, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0 || channel_feed(a->channel, chunk, (size_t)n, &e))
		return false;
	for (int got; (got = channel_next(a->channel, &m, &e)) != 0; msg_fini(&m)) {
		bool goes_on = got > 0 && agent_take(s, a, &m, clock_s());
		if (!goes_on) {
			msg_fini(&m);
			return false;
		}
	}
	return true;
}

static void serve(struct stand_in *s, struct agent *a, unsigned events)
{
	if (a->fd < 0)
		return;
	if (events & ~(unsigned)EPOLLOUT && !read_messages(s, a)) {
		end_agent(s, a, a->ends ? 0 : LEFT);
		return;
	}
	write_out(s, a);
}

/* A node's agents have an address of their own. */
static void connect_agent(struct stand_in *s, struct agent *a)
{
	char host[64];
	int node = a->started_as / AGENTS_NODE, one = 1;
	struct sockaddr_in to = { .sin_family = AF_INET },
			   from = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(0x7f010001u + (unsigned)node) };
	const char *address = getenv(AGENT_ENV_ADDRESS), *colon = strrchr(address, ':');
	snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
	to.sin_port = htons((uint16_t)atoi(colon + 1));
	a->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (a->fd < 0 || inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
	    setsockopt(a->fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one) ||
	    bind(a->fd, (struct sockaddr *)&from, sizeof from) ||
	    connect(a->fd, (struct sockaddr *)&to, sizeof to))
		fail_with("cannot connect");
	setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	fcntl(a->fd, F_SETFL, O_NONBLOCK);
	if (channel_open(AUTH_AGENT, s->secret, s->generation, &a->channel, NULL))
		fail_with("channel_open");
	agent_hello(s, a);
	watch(s, a, EPOLL_CTL_ADD, false);
	write_out(s, a);
}

/* --- time ----------------------------------------------------------------------------------- */

void stand_in_beat(struct stand_in *s, struct agent *a, double now)
{
	a->beat = now + s->heartbeat_s;
	s->queue[s->end] = a;
	s->end = (s->end + 1) % (s->n + 1);
}

static bool reports(const struct agent *a)
{
	return a->fd >= 0 && a->welcome && !a->mute && !a->ends;
}

/* Lists the agents of the node that report; they were started side by side. The first one is its relay. 0: that
 * is not here, or reports nothing. */
static int list_node(const struct stand_in *s, struct agent *of, struct agent *list[AGENTS_NODE])
{
	struct agent *end = s->agents + s->n;
	struct agent *a = of - s->agents < AGENTS_NODE ? s->agents : of - AGENTS_NODE + 1;
	int n = 0;
	for (; a < end && a < of + AGENTS_NODE && n < AGENTS_NODE; a++)
		if (reports(a) && a->leader == of->leader && a->generation == of->generation)
			list[n++] = a;
	return n && list[0]->rank == of->leader ? n : 0;
}

/* As real agents, each for itself, or the relay of a node for all of its ranks. */
static void report(struct stand_in *s, struct agent *a, double now)
{
	struct agent *node[AGENTS_NODE];
	int n = s->each ? 0 : list_node(s, a, node);
	if (n == 0)
		agent_progress(s, a, now);
	else if (node[0] == a)
		agent_node_progress(s, a, node, n, now);
}

static void send_progress(struct stand_in *s, double now)
{
	while (s->first != s->end && s->queue[s->first]->beat <= now) {
		struct agent *a = s->queue[s->first];
		s->first = (s->first + 1) % (s->n + 1);
		if (!reports(a))
			continue;
		report(s, a, now);
		write_out(s, a);
		stand_in_beat(s, a, now);
	}
}

static void finish_step(struct stand_in *s, double now)
{
	if (s->next_step <= 0 || now < s->next_step)
		return;
	s->next_step = now + AGENTS_STEP_S;
	s->step++;
	for (struct agent *a = s->agents; a < s->agents + s->n; a++)
		if (a->fd >= 0 && a->welcome && !a->mute && !a->ends) {
			agent_step(s, a);
			write_out(s, a);
		}
}

/* --- commands ------------------------------------------------------------------------------- */

/* Says how many messages were sent, every second. */
static void write_count(struct stand_in *s, double now)
{
	char path[AGENTS_PATH], new[AGENTS_PATH];
	int64_t sent = 0;
	if (s->commands < 0 || now < s->next_count)
		return;
	for (const struct agent *a = s->agents; a < s->agents + s->n; a++)
		sent += a->sent;
	snprintf(path, sizeof path, "%s/" AGENTS_SENT, s->dir);
	snprintf(new, sizeof new, "%s/" AGENTS_SENT ".new", s->dir);
	FILE *out = fopen(new, "we");
	if (!out || fprintf(out, "%lld %.6f\n", (long long)sent, now) < 0 || fclose(out) ||
	    rename(new, path))
		fail_with(path);
	s->next_count = now + 1;
}

static void write_number(const struct stand_in *s, const char *name, double value)
{
	char path[AGENTS_PATH];
	snprintf(path, sizeof path, "%s/%s", s->dir, name);
	FILE *out = fopen(path, "we");
	if (!out || fprintf(out, "%.6f\n", value) < 0 || fclose(out))
		fail_with(path);
}

/* A killed rank: the kernel closes its connections, and the ranks of its groups see that. */
static void kill_rank(struct stand_in *s, struct agent *gone)
{
	end_agent(s, gone, KILLED);
	for (struct agent *a = s->agents; a < s->agents + s->n; a++)
		if (a->fd >= 0 && !a->mute && agent_shares_group(a, gone)) {
			agent_blame(a, gone->rank);
			write_out(s, a);
		}
}

static void obey(struct stand_in *s, const char *word, struct agent *to)
{
	int node = to->node;
	write_number(s, AGENTS_CLOSED, clock_s());
	if (!strcmp(word, "close"))
		kill_rank(s, to);
	else if (!strcmp(word, "mute"))
		to->mute = true;
	else
		write_number(s, AGENTS_DOWN, node);
	for (struct agent *a = s->agents; !strcmp(word, "down") && a < s->agents + s->n; a++)
		if (a->fd >= 0 && a->node == node)
			end_agent(s, a, KILLED);
}

/* A rank that is another process's now counts as the next one. */
static void take_command(struct stand_in *s)
{
	char line[128], word[16];
	int rank;
	ssize_t n = read(s->commands, line, sizeof line - 1);
	line[n > 0 ? n : 0] = '\0';
	if (sscanf(line, "%15s %d", word, &rank) != 2)
		return;
	for (struct agent *a = s->agents; a < s->agents + s->n; a++)
		if (a->fd >= 0 && !a->mute && a->rank >= rank) {
			obey(s, word, a);
			return;
		}
	fprintf(stderr, "no rank from %d on is here\n", rank); /* all were replaced */
}

/* The first stand-in of a run takes the commands. */
static void open_commands(struct stand_in *s)
{
	char path[AGENTS_PATH];
	s->commands = -1;
	if (s->generation != 1)
		return;
	write_number(s, AGENTS_STAND_IN, getpid());
	snprintf(path, sizeof path, "%s/" AGENTS_COMMANDS, s->dir);
	s->commands = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN };
	if (s->commands < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->commands, &ev))
		fail_with(path);
}

/* --- the process ---------------------------------------------------------------------------- */

/* "3,5-7/16" */
static void read_ranks(struct stand_in *s)
{
	const char *at = getenv(AGENT_ENV_RANKS);
	char *end = NULL;
	s->world = atoi(strchr(at, '/') + 1);
	s->agents = calloc((size_t)s->world, sizeof *s->agents);
	for (; s->agents && *at != '/'; at = *end == ',' ? end + 1 : end) {
		long first = strtol(at, &end, 10),
		     last = *end == '-' ? strtol(end + 1, &end, 10) : first;
		for (long rank = first; rank <= last; rank++)
			s->agents[s->n++] = (struct agent){ .fd = -1,
							    .started_as = (int)rank,
							    .rank = (int)rank };
	}
	s->queue = calloc((size_t)s->n + 1, sizeof(struct agent *));
	if (!s->agents || !s->queue)
		fail_with("no memory");
}

static void turn(struct stand_in *s, int ms)
{
	struct epoll_event ready[EVENTS];
	int n = epoll_wait(s->epoll, ready, EVENTS, ms);
	for (int i = 0; i < n; i++)
		if (ready[i].data.ptr)
			serve(s, ready[i].data.ptr, ready[i].events);
		else
			take_command(s);
	double now = clock_s();
	send_progress(s, now);
	finish_step(s, now);
	write_count(s, now);
	fflush(stdout);
}

int agents_stand_in(const char *dir)
{
	struct stand_in s = { .dir = dir, .each = getenv(AGENTS_EACH) != NULL };
	struct err e = ERR_INIT;
	s.epoll = epoll_create1(EPOLL_CLOEXEC);
	s.generation = (uint32_t)strtoul(getenv(AGENT_ENV_GENERATION), NULL, 10);
	read_ranks(&s);
	if (launcher_descriptors_allow(s.n, 1, &e) ||
	    auth_secret_parse(getenv(AGENT_ENV_SECRET), s.secret, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	open_commands(&s);
	for (int i = 0; i < s.n; i++) {
		connect_agent(&s, &s.agents[i]);
		s.left++;
		if (i % CONNECTS_PER_TURN == 0)
			turn(&s, 0);
	}
	while (s.left > 0)
		turn(&s, 5);
	return 0;
}
