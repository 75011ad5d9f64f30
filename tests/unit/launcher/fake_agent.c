#include "tests/unit/launcher/fake_agent.h"

#include "base/agent_env.h"
#include "base/auth.h"
#include "base/clock.h"
#include "base/net.h"

#include <poll.h>
#include <pmix.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct fake {
	struct channel *channel;
	int fd, rank, world;
	uint32_t generation;
	bool welcome, stop;
	char run[4096];
	long steps, step_ms, resumed;
};

static void fail_with(const char *why)
{
	fprintf(stderr, "fake agent: %s\n", why);
	exit(1);
}

static long read_option(const char *name, long otherwise, long *at)
{
	const char *all = getenv("FAKE_AGENT"), *found = all ? strstr(all, name) : NULL;
	if (!found)
		return otherwise;
	char *end;
	long v = strtol(found + strlen(name), &end, 10);
	if (at)
		*at = *end == '@' ? atol(end + 1) : 0;
	return v;
}

/* Writes what is queued, and reads for at most `ms`. */
static void exchange_messages(struct fake *f, int ms)
{
	struct buf *out = channel_out(f->channel);
	while (out->len) {
		ssize_t n = send(f->fd, out->data, out->len, MSG_NOSIGNAL);
		if (n <= 0)
			fail_with("the supervisor is gone");
		buf_drop(out, (size_t)n);
	}
	struct pollfd p = { .fd = f->fd, .events = POLLIN };
	char chunk[65536];
	struct err e = ERR_INIT;
	if (poll(&p, 1, ms) <= 0)
		return;
	ssize_t n = recv(f->fd, chunk, sizeof chunk, 0);
	if (n <= 0 || channel_feed(f->channel, chunk, (size_t)n, &e))
		fail_with("the connection ended");
	struct msg m;
	while (channel_next(f->channel, &m, &e) == 1) {
		if (m.type == MSG_ABORT)
			_exit(1);
		f->stop |= m.type == MSG_STOP;
		if (m.type == MSG_WELCOME) {
			f->welcome = true;
			snprintf(f->run, sizeof f->run, "%s",
				 json_string_value(json_object_get(m.body, "run")));
		}
		msg_fini(&m);
	}
}

static void send_message(struct fake *f, enum msg_type type, json_t *body)
{
	if (channel_send(f->channel, type, body, NULL))
		fail_with("cannot send");
	json_decref(body);
	exchange_messages(f, 0);
}

/* The step that the run folder holds. It is read before the fence, because a faster agent may save
 * the next step soon after it. */
static long read_saved_step(void)
{
	const char *run = getenv("FAKE_AGENT_RUN");
	char path[4200];
	long step = 0;
	if (!run)
		return 0;
	snprintf(path, sizeof path, "%s/ckpt/step", run);
	FILE *in = fopen(path, "r");
	if (in && fscanf(in, "%ld", &step) != 1)
		step = 0;
	if (in)
		fclose(in);
	return step;
}

static void wire_up(struct fake *f)
{
	pmix_proc_t me, all;
	pmix_value_t *v = NULL;
	if (PMIx_Init(&me, NULL, 0))
		fail_with("PMIx_Init");
	f->rank = (int)me.rank;
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v))
		fail_with("PMIx_Get");
	f->world = (int)v->data.uint32;
	PMIX_VALUE_RELEASE(v);
	f->resumed = read_saved_step();
	pmix_value_t mine;
	PMIX_VALUE_LOAD(&mine, "endpoint", PMIX_STRING);
	bool collect = true;
	pmix_info_t info;
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	if (PMIx_Put(PMIX_GLOBAL, "muster.fake", &mine) || PMIx_Commit() ||
	    PMIx_Fence(&all, 1, &info, 1))
		fail_with("PMIx_Fence");
	all.rank = (pmix_rank_t)((f->rank + 1) % f->world);
	if (PMIx_Get(&all, "muster.fake", NULL, 0, &v))
		fail_with("PMIx_Get of a peer");
	PMIX_VALUE_RELEASE(v);
	PMIx_Finalize(NULL, 0);
}

static void connect_up(struct fake *f)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	struct err e = ERR_INIT;
	const char *generation = getenv(AGENT_ENV_GENERATION), *hex = getenv(AGENT_ENV_SECRET);
	if (!generation || !hex || auth_secret_parse(hex, secret, &e))
		fail_with("no secret");
	f->generation = (uint32_t)strtoul(generation, NULL, 10);
	if (channel_open(AUTH_AGENT, secret, f->generation, &f->channel, &e) ||
	    net_connect(getenv(AGENT_ENV_ADDRESS), 5, &f->fd, &e))
		fail_with(e.text);
}

static void save_step(struct fake *f, long step)
{
	char path[4200];
	if (f->rank != f->world - 1)
		return;
	snprintf(path, sizeof path, "%s/ckpt/step", f->run);
	FILE *out = fopen(path, "w");
	if (!out || fprintf(out, "%ld\n", step) < 0 || fclose(out))
		fail_with("cannot save");
	send_message(f, MSG_CKPT,
		     msg_ckpt_json(&(struct msg_ckpt){ .step = step, .path = path, .bytes = 8 }));
}

static void inject_fault(struct fake *f, long step)
{
	long at = 0;
	if ((read_option("die=", -1, &at) == f->rank && at == step && f->generation == 1) ||
	    (read_option("crash=", -1, &at) == f->rank && at == step))
		raise(SIGKILL);
	if (read_option("hang=", -1, &at) == f->rank && at == step && f->generation == 1)
		raise(SIGSTOP);
}

static long run_steps(struct fake *f)
{
	long step = f->resumed;
	json_t *phases = json_object();
	send_message(f, MSG_READY,
		     msg_ready_json(&(struct msg_ready){ .step = step, .phases = phases }));
	json_decref(phases);
	while (step < f->steps && !f->stop) {
		inject_fault(f, step + 1);
		exchange_messages(f, (int)f->step_ms);
		step++;
		send_message(f, MSG_PROGRESS,
			     msg_progress_json(
				     &(struct msg_progress){ .step = step, .phase = "forward" }));
		if (f->rank == f->world - 1)
			send_message(f, MSG_METRICS,
				     msg_metrics_json(&(struct msg_metrics){
					     .step = step,
					     .loss = 5.5 / (double)step,
					     .grad_norm = 1,
					     .lr = 1e-3,
					     .tokens = 1024,
					     .step_s = (double)f->step_ms * 1e-3 + 1e-6 }));
		if (step % 10 == 0 || step == f->steps)
			save_step(f, step);
	}
	return step;
}

int fake_agent(void)
{
	struct fake f = { .steps = read_option("steps=", 20, NULL),
			  .step_ms = read_option("step_ms=", 5, NULL) };
	wire_up(&f);
	connect_up(&f); /* a connection that says nothing is closed after some seconds */
	send_message(&f, MSG_HELLO,
		     msg_hello_json(&(struct msg_hello){ .rank = f.rank,
							 .world = f.world,
							 .node = "here",
							 .pid = (int)getpid(),
							 .boot = "",
							 .cpus = "",
							 .version = MSG_VERSION }));
	while (!f.welcome)
		exchange_messages(&f, 1000);
	if (read_option("fail=", -1, NULL) == f.rank) {
		send_message(&f, MSG_FAILED,
			     json_pack("{s:s, s:s}", "code", "corrupt", "text",
				       "tokens.bin: damaged; pack it again"));
		return 1;
	}
	while (read_option("fail=", -1, NULL) >= 0) /* no step is done unless all ranks take part */
		exchange_messages(&f, 1000);
	long step = run_steps(&f);
	if (f.stop)
		save_step(&f, step);
	json_t *phases = json_object();
	send_message(&f, MSG_FINISHED,
		     msg_finished_json(&(struct msg_finished){ .step = step, .phases = phases }));
	json_decref(phases);
	exchange_messages(&f, 0);
	channel_close(f.channel);
	close(f.fd);
	return 0;
}
