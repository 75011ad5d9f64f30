/*
 * harness — a supervisor with nothing real around it. Agents are channels over socket pairs,
 * processes are counters, and time stands still until a test moves it.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_HARNESS_H
#define MUSTER_TESTS_UNIT_LAUNCHER_HARNESS_H

#include "base/auth.h"
#include "base/buf.h"
#include "launcher/supervise/supervise.h"
#include "tests/unit/launcher/event_lines.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORLD = 2, PEERS = 8 };

struct peer {
	int fd;
	struct channel *channel;
	/* mute: does not answer a request for its dump */
	bool closed, welcomed, stopped, aborted, checkpoint, asked, mute;
	/* mute_later: does not answer a request to examine; looked_at: bits 1 << rank */
	bool mute_later, slow_debugger;
	unsigned looked_at;
	/* how often it was asked to regroup; stubborn: it does not answer */
	int regroups, welcomes, endpoints;
	bool stubborn, by_pmix, copies;
	int rank, world;  /* of the last welcome */
	int64_t recorded; /* the last step that was reported to it */
	int saves;        /* how often it was asked for a checkpoint */
	int traces;       /* how often it was asked to record steps */
	int collects;     /* how often it was asked to collect a log; of whom, the last time */
	int collect_rank;
	char collect_node[64];
	bool has_program; /* the last welcome had a place for a task */
	int local_rank, group_rank, group_world;
	char tasks_devices[32];
	bool shown;
	int64_t at_step; /* of the last request to stop; 0: none */
	double reach_s;
	char resume[256];
	double heartbeat_s;
	int threads, at[4]; /* tp, cp, dp, pp that it received */
	int device, numa, predecessors, skips;
	char cpus[64];
};

struct launch {
	int unused;
};

static struct harness {
	uv_loop_t loop;
	double now;
	char dir[256], agent[300];
	struct topo_device devices[WORLD];
	struct node_kind kind;
	struct cluster_node node;
	struct plan_rank ranks[WORLD];
	struct deployment first;
	struct rundir *run;
	struct terminal *term;
	struct supervisor *supervisor;
	/* the launch backend */
	struct launch launch;
	struct launch_events events;
	unsigned char secret[AUTH_SECRET_BYTES];
	uint32_t generation;
	int starts, kills, world;
	int helper_dies; /* this many starts fail because a helper process died */
	bool running, fail_start, keep_running;
	bool node_lost; /* of the last kill */
	int status[WORLD];
	bool gone[WORLD];
	struct peer peers[PEERS];
	const char *found[WORLD]; /* the kind that an examination of the rank finds */
	bool tasks;               /* tasks of a program are examined, not agents */
	double heartbeats;        /* of the limits; 0: the default */
} h;

static double fake_now(void)
{
	return h.now;
}

static int fake_start(uv_loop_t *loop, const struct launch_request *r,
		      const struct launch_events *ev, struct launch **out, struct err *e)
{
	(void)loop;
	h.starts++;
	if (h.helper_dies && h.helper_dies--)
		return err_set(e, ERR_PEER, "a helper process died");
	if (h.fail_start)
		return err_set(e, ERR_NOMEM, "cannot start another process");
	assert_int_equal(auth_secret_parse(r->secret, h.secret, e), 0);
	h.generation = r->generation;
	h.events = *ev;
	h.running = true;
	h.kills = 0;
	h.world = r->plan->world;
	memset(h.gone, 0, sizeof h.gone);
	for (int i = 0; i < WORLD; i++)
		h.status[i] = SIGKILL;
	*out = &h.launch;
	return 0;
}

static void fake_kill(struct launch *l, bool node_lost)
{
	assert_ptr_equal(l, &h.launch);
	h.node_lost = node_lost;
	h.kills++;
}

static void fake_close(struct launch *l)
{
	assert_ptr_equal(l, &h.launch);
	assert_false(h.running);
}

static const struct launch_ops fake_ops = {
	.name = "fake", .start = fake_start, .kill = fake_kill, .close = fake_close
};

static inline void peer_end(struct peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	channel_close(p->channel);
	*p = (struct peer){ .fd = -1 };
}

/* A rank's process ends. The last one ends the generation. */
static inline void end_process(int rank, int status)
{
	if (h.gone[rank])
		return;
	h.gone[rank] = true;
	h.events.exited(h.events.arg, rank, status);
	bool all = true;
	for (int i = 0; i < h.world; i++)
		all &= h.gone[i];
	if (!all || !h.running)
		return;
	h.running = false;
	h.events.all_gone(h.events.arg);
}

static void note_program(struct peer *p, const struct msg_welcome *w)
{
	struct msg_program m;
	p->has_program = w->has_program;
	if (!w->has_program)
		return;
	assert_int_equal(msg_program_read(w->program, &m, NULL), 0);
	p->local_rank = m.local_rank;
	p->group_rank = m.group_rank;
	p->group_world = m.group_world;
	p->shown = m.shown;
	snprintf(p->tasks_devices, sizeof p->tasks_devices, "%s", m.devices);
}

static void note_welcome(struct peer *p, const json_t *body)
{
	struct msg_welcome w;
	struct msg_coords at;
	assert_int_equal(msg_welcome_read(body, &w, NULL), 0);
	assert_int_equal(msg_coords_read(w.coords, &at, NULL), 0);
	p->rank = w.rank;
	p->world = w.world;
	p->by_pmix = w.pmix;
	p->copies = w.copies;
	if (p->welcomes++)
		channel_renew(p->channel, (uint32_t)w.generation);
	snprintf(p->resume, sizeof p->resume, "%s", w.resume);
	snprintf(p->cpus, sizeof p->cpus, "%s", w.cpus);
	p->heartbeat_s = w.heartbeat_s;
	p->threads = w.threads;
	p->device = w.device;
	p->numa = w.numa;
	p->predecessors = (int)json_array_size(w.predecessors);
	p->skips = (int)json_array_size(w.skips);
	note_program(p, &w);
	p->at[0] = at.tp;
	p->at[1] = at.cp;
	p->at[2] = at.dp;
	p->at[3] = at.pp;
}

static void answer_examine(struct peer *p, const json_t *body)
{
	struct msg_examine m;
	assert_int_equal(msg_examine_read(body, &m, NULL), 0);
	assert_int_equal(m.pid, (h.tasks ? 200 : 100) + m.rank);
	p->looked_at |= 1u << m.rank;
	if (p->mute_later)
		return;
	json_t *answer = msg_examined_json(
		&(struct msg_examined){ .rank = m.rank,
					.kind = h.found[m.rank] ? h.found[m.rank] : "waiting",
					.text = "its threads were examined",
					.last = !p->slow_debugger });
	channel_send(p->channel, MSG_EXAMINED, answer, NULL);
	json_decref(answer);
}

static void note_collect(struct peer *p, const json_t *body)
{
	struct msg_collect m;
	assert_int_equal(msg_collect_read(body, &m, NULL), 0);
	p->collects++;
	p->collect_rank = m.rank;
	snprintf(p->collect_node, sizeof p->collect_node, "%s", m.node);
}

static void peer_read(struct peer *p)
{
	char chunk[65536];
	struct err e = ERR_INIT;
	struct msg m;
	ssize_t n = recv(p->fd, chunk, sizeof chunk, MSG_DONTWAIT);
	if (n == 0)
		p->closed = true;
	if (n <= 0 || channel_feed(p->channel, chunk, (size_t)n, &e))
		return;
	while (channel_next(p->channel, &m, &e) == 1) {
		p->welcomed |= m.type == MSG_WELCOME;
		p->stopped |= m.type == MSG_STOP;
		p->saves += m.type == MSG_SAVE;
		p->traces += m.type == MSG_TRACE;
		p->aborted |= m.type == MSG_ABORT;
		p->regroups += m.type == MSG_REGROUP;
		if (m.type == MSG_REGROUP && !p->stubborn)
			channel_send(p->channel, MSG_IDLE, NULL, NULL);
		if (m.type == MSG_WORLD_ENDPOINTS)
			p->endpoints += (int)json_array_size(json_object_get(m.body, "values"));
		p->asked |= m.type == MSG_DUMP;
		if (m.type == MSG_DUMP && !p->mute)
			channel_send(p->channel, MSG_DUMPED, NULL, NULL);
		if (m.type == MSG_COLLECT)
			note_collect(p, m.body);
		if (m.type == MSG_EXAMINE)
			answer_examine(p, m.body);
		if (m.type == MSG_RECORDED)
			p->recorded = json_integer_value(json_object_get(m.body, "step"));
		if (m.type == MSG_WELCOME)
			note_welcome(p, m.body);
		if (m.type == MSG_STOP) {
			p->checkpoint = json_is_true(json_object_get(m.body, "checkpoint"));
			p->at_step = json_integer_value(json_object_get(m.body, "at_step"));
			p->reach_s = json_number_value(json_object_get(m.body, "reach_s"));
		}
		msg_fini(&m);
	}
}

/* Delivers everything that is under way, in both directions. */
static inline void deliver_all(void)
{
	for (int round = 0; round < 12; round++) {
		for (struct peer *p = h.peers; p < h.peers + PEERS; p++) {
			struct buf *out = p->channel ? channel_out(p->channel) : NULL;
			ssize_t n = out && out->len ? send(p->fd, out->data, out->len,
							   MSG_NOSIGNAL | MSG_DONTWAIT)
						    : 0;
			if (n > 0)
				buf_drop(out, (size_t)n);
		}
		uv_run(&h.loop, UV_RUN_NOWAIT);
		for (struct peer *p = h.peers; p < h.peers + PEERS; p++)
			if (p->channel)
				peer_read(p);
		for (int i = 0; h.kills && h.running && !h.keep_running && i < h.world; i++)
			end_process(i, h.status[i]);
	}
}

/* Lets time pass in ticks, as the real loop does. */
static inline void pass_time(double seconds)
{
	for (double end = h.now + seconds; h.now < end;) {
		h.now += 0.05;
		supervise_tick(h.supervisor);
		deliver_all();
	}
}

static inline struct peer *peer_open(int i, const unsigned char *secret, uint32_t generation)
{
	struct peer *p = &h.peers[i];
	int fds[2];
	peer_end(p);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	p->fd = fds[0];
	assert_int_equal(channel_open(AUTH_AGENT, secret, generation, &p->channel, NULL), 0);
	supervise_adopt(h.supervisor, fds[1]);
	return p;
}

static inline void send_message(struct peer *p, enum msg_type type, json_t *body)
{
	assert_int_equal(channel_send(p->channel, type, body, NULL), 0);
	json_decref(body);
	deliver_all();
}

/* The message is in the socket, and the supervisor has not read it. */
static inline void leave_message(struct peer *p, enum msg_type type, json_t *body)
{
	struct buf *out = channel_out(p->channel);
	assert_int_equal(channel_send(p->channel, type, body, NULL), 0);
	json_decref(body);
	assert_int_equal(send(p->fd, out->data, out->len, MSG_NOSIGNAL), out->len);
	buf_clear(out);
}

static inline json_t *hello_json(int rank)
{
	return msg_hello_json(&(struct msg_hello){ .rank = rank,
						   .world = h.world,
						   .node = "here",
						   .pid = 100 + rank,
						   .start = 1000 + rank,
						   .pid_space = 7,
						   .boot = "boot",
						   .cpus = "",
						   .version = MSG_VERSION });
}

/* The body of a message that a training rank sends. */
static inline json_t *step_json(enum msg_type type, int64_t step)
{
	json_t *phases = json_object(), *body = NULL;
	if (type == MSG_READY)
		body = msg_ready_json(&(struct msg_ready){ .step = step, .phases = phases });
	else if (type == MSG_METRICS)
		body = msg_metrics_json(&(struct msg_metrics){
			.step = step, .loss = 2.5, .step_s = 0.1, .tokens = 512 });
	else if (type == MSG_PROGRESS)
		body = msg_progress_json(
			&(struct msg_progress){ .step = step, .phase = "forward" });
	else if (type == MSG_CKPT)
		body = msg_ckpt_json(&(struct msg_ckpt){ .step = step, .path = "ckpt/x" });
	else if (type == MSG_SERIES)
		body = msg_series_json(&(struct msg_series){ .step = step });
	else if (type == MSG_FINISHED)
		body = msg_finished_json(&(struct msg_finished){ .step = step, .phases = phases });
	json_decref(phases);
	assert_non_null(body);
	return body;
}

static inline void send_step(struct peer *p, enum msg_type type, int64_t step)
{
	send_message(p, type, step_json(type, step));
}

static inline void connect_all(void)
{
	for (int i = 0; i < h.world; i++)
		send_message(peer_open(i, h.secret, h.generation), MSG_HELLO, hello_json(i));
}

static inline void train_all(void)
{
	connect_all();
	for (int i = 0; i < h.world; i++)
		send_step(&h.peers[i], MSG_READY, 0);
}

/* The connection and the process of a rank end, in the kernel's order. */
static inline void end_rank(int rank)
{
	h.status[rank] = SIGSEGV;
	shutdown(h.peers[rank].fd, SHUT_RDWR);
	deliver_all();
}

static inline int exit_status(void)
{
	int status = -1;
	return supervise_done(h.supervisor, &status) ? status : -1;
}

/* The number of lines of events.jsonl that hold both texts. */
static inline int count_events(const char *a, const char *b)
{
	return count_events_in(rundir_path(h.run), a, b);
}

/* The number of lines that were printed for people and hold this text. *last: the last line of all
 * holds it. */
static inline int count_printed(const char *text, bool *last)
{
	char path[300], line[2048];
	int n = 0;
	assert_true(supervise_terminal_flush(h.term));
	snprintf(path, sizeof path, "%s/printed", h.dir);
	FILE *in = fopen(path, "re");
	assert_non_null(in);
	for (*last = false; fgets(line, sizeof line, in); n += *last)
		*last = strstr(line, text);
	fclose(in);
	return n;
}

/* Opens the supervisor of the run with this launch backend. */
static inline int open_supervisor(const struct launch_ops *ops)
{
	struct supervise_options o = {
		.loop = &h.loop,
		.job = &h.first.job,
		.machines = &h.first.cluster,
		.first = &h.first,
		.ops = ops,
		.agent = h.agent,
		.run = h.run,
		.listener = -1,
		.address = "127.0.0.1:1",
		.limits = SUPERVISE_LIMITS,
		.now = fake_now,
		.term = h.term,
	};
	if (h.heartbeats > 0)
		o.limits.heartbeats = h.heartbeats;
	return supervise_open(&o, &h.supervisor, NULL);
}

static inline int setup(void **state)
{
	(void)state;
	static json_t *doc;
	static char text[] = "[job]\n";
	memset(&h, 0, sizeof h);
	for (int i = 0; i < PEERS; i++)
		h.peers[i].fd = -1;
	if (!tmpdir_make(h.dir, sizeof h.dir) || uv_loop_init(&h.loop) ||
	    rundir_open(h.dir, "run", &h.run, NULL))
		return -1;
	char printed[300];
	snprintf(printed, sizeof printed, "%s/printed", h.dir);
	struct terminal_options look = { .fd = open(printed, O_WRONLY | O_CREAT | O_CLOEXEC, 0600),
					 .every = 1,
					 .steps = 10 };
	snprintf(h.agent, sizeof h.agent, "%s/agent", h.dir);
	doc = doc ? doc : json_pack("{s:i}", "world", WORLD);
	snprintf(h.node.name, sizeof h.node.name, "here");
	snprintf(h.first.job.checkpoint.resume, sizeof h.first.job.checkpoint.resume, "none");
	h.first.job.job.steps = 10;
	h.first.job.restart.max_restarts = 5;
	h.first.job.restart.max_futile = 3;
	h.first.job.restart.backoff = 1;
	h.first.job.restart.hang_timeout = 60;
	snprintf(h.devices[0].cpus, sizeof h.devices[0].cpus, "0-3");
	snprintf(h.devices[1].cpus, sizeof h.devices[1].cpus, "4-7");
	h.devices[1].numa = 1;
	h.kind = (struct node_kind){
		.device = "cpu", .devices = WORLD, .cores = 8, .parts = h.devices
	};
	h.first.cluster =
		(struct cluster){ .kinds = &h.kind, .n_kinds = 1, .nodes = &h.node, .n_nodes = 1 };
	h.first.plan = (struct plan){
		.world = WORLD,
		.layout = { .tp = WORLD, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 },
		.ranks = h.ranks
	};
	h.first.job_text = text;
	h.first.plan_doc = doc;
	h.ranks[1].at = (struct coords){ .tp = 1, .cp = 2, .dp = 3, .pp = 4 };
	h.ranks[0].threads = 1;
	h.ranks[1].threads = 3;
	h.ranks[0].slot = 1; /* not in the order of the ranks */
	h.now = 1000;
	if (supervise_terminal_open(&look, &h.term, NULL))
		h.term = NULL;
	return open_supervisor(&fake_ops);
}

/* Opens the supervisor again, with rank 1 on a second node. */
static inline void open_on_two_nodes(void)
{
	static struct cluster_node nodes[2];
	supervise_close(h.supervisor);
	nodes[0] = nodes[1] = h.node;
	h.first.cluster.nodes = nodes;
	h.first.cluster.n_nodes = 2;
	h.ranks[1].node = 1;
	assert_int_equal(open_supervisor(&fake_ops), 0);
}

static inline void on_nothing(uv_timer_t *timer)
{
	(void)timer;
}

/* A killed reader of flight recorders still ends, although the loop does not wait for it. */
static inline void reap_children(void)
{
	uv_timer_t awake;
	siginfo_t info;
	uv_timer_init(&h.loop, &awake);
	uv_timer_start(&awake, on_nothing, 1, 1);
	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT))
		uv_run(&h.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&awake, NULL);
	uv_run(&h.loop, UV_RUN_DEFAULT);
}

static inline int teardown(void **state)
{
	(void)state;
	char remove[512];
	for (int i = 0; i < PEERS; i++)
		peer_end(&h.peers[i]);
	supervise_close(h.supervisor);
	reap_children();
	int left = uv_loop_close(&h.loop);
	supervise_terminal_close(h.term);
	rundir_close(h.run);
	snprintf(remove, sizeof remove, "rm -rf '%s'", h.dir);
	return system(remove) || left ? -1 : 0;
}

#endif
