/* Tests the training loop in a world of one rank. A thread plays the supervisor. tests/cli tests
 * layouts of many ranks. */
#include "agent/control.h"
#include "agent/engine/data/pack.h"
#include "agent/engine/train/train.h"
#include "agent/metrics/report.h"
#include "base/auth.h"
#include "base/file.h"
#include "base/log.h"
#include "base/net.h"
#include "tests/unit/agent/world.h"
#include "tests/unit/tmpdir.h"
#include "tests/unit/patience.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

enum { STEPS_MAX = 200000 };

/* --- the supervisor --- */

struct supervisor {
	unsigned char secret[AUTH_SECRET_BYTES];
	char address[NET_ADDR_MAX];
	int listener;
	pthread_t thread;
	int64_t stop_after;   /* stops the trainer when it reports this step; 0: never */
	bool checkpoint;      /* that stop requests a checkpoint */
	atomic_bool stop_now; /* stops it once, at its next message */
	/* what the supervisor has received */
	double *loss;           /* by step */
	bool records_nothing;   /* the metrics do not reach the run folder, */
	atomic_bool record_now; /* or do so only at the agent's next message */
	int64_t ready, last, finished, ckpt, evals, series;
	double eval_loss;
};

static json_t *welcome_json(void)
{
	struct msg_welcome w = { .job = "",
				 .run = "",
				 .resume = "none",
				 .coords = json_object(),
				 .node = "",
				 .heartbeat_s = 0.05,
				 .silent_s = 15,
				 .group_secret = "",
				 .bus = "",
				 .cpus = "" };
	json_t *body = msg_welcome_json(&w);
	json_decref(w.coords);
	return body;
}

static void hear(struct supervisor *v, struct channel *c, const struct msg *m)
{
	int64_t step = json_integer_value(json_object_get(m->body, "step"));
	double loss = json_real_value(json_object_get(m->body, "loss"));
	json_t *answer = NULL;
	if (atomic_exchange(&v->stop_now, false)) {
		answer = msg_stop_json(&(struct msg_stop){ .reason = "" });
		channel_send(c, MSG_STOP, answer, NULL);
		json_decref(answer);
		answer = NULL;
	}
	if (atomic_exchange(&v->record_now, false)) {
		answer = json_pack("{s:I}", "step", (json_int_t)v->series);
		channel_send(c, MSG_RECORDED, answer, NULL);
		json_decref(answer);
		answer = NULL;
	}
	switch (m->type) {
	case MSG_HELLO:
		answer = welcome_json();
		channel_send(c, MSG_WELCOME, answer, NULL);
		break;
	case MSG_READY:
		v->ready = step;
		break;
	case MSG_METRICS:
		v->last = step;
		v->loss[step < STEPS_MAX ? step : 0] = loss;
		if (step != v->stop_after)
			break;
		answer = msg_stop_json(
			&(struct msg_stop){ .reason = "", .checkpoint = v->checkpoint });
		channel_send(c, MSG_STOP, answer, NULL);
		break;
	case MSG_EVAL:
		v->evals++;
		v->eval_loss = loss;
		break;
	case MSG_CKPT:
		v->ckpt = step;
		break;
	case MSG_SERIES:
		v->series = step;
		if (v->records_nothing)
			break;
		answer = json_pack("{s:I}", "step", (json_int_t)step);
		channel_send(c, MSG_RECORDED, answer, NULL);
		break;
	case MSG_FINISHED:
		v->finished = step;
		break;
	default:
		break;
	}
	json_decref(answer);
}

static void *supervise_run(void *arg)
{
	struct supervisor *v = arg;
	struct channel *c;
	int fd = -1;
	poll(&(struct pollfd){ v->listener, POLLIN, 0 }, 1, -1);
	if (net_accept(v->listener, &fd, NULL) ||
	    channel_open(AUTH_SUPERVISOR, v->secret, 1, &c, NULL))
		return NULL;
	char data[4096];
	ssize_t n;
	while ((n = recv(fd, data, sizeof data, 0)) > 0 &&
	       !channel_feed(c, data, (size_t)n, NULL)) {
		struct msg m;
		while (channel_next(c, &m, NULL) == 1) {
			hear(v, c, &m);
			msg_fini(&m);
		}
		struct buf *out = channel_out(c);
		if (out->len && file_write_full(fd, out->data, out->len))
			break;
		buf_clear(out);
	}
	close(fd);
	channel_close(c);
	return NULL;
}

/* --- a run --- */

static const char base[] =
	"[job]\nname = t\nsteps = 6\nseed = 3\n"
	"[model]\nfamily = gpt2\nlayers = 1\nhidden = 16\nheads = 2\nvocab = 256\nseq = 8\n"
	"[batch]\nmicro = 1\nglobal = 2\n"
	"[optimizer]\nlr = 1e-3\nwarmup = 2\ndecay_steps = 6\n"
	"[data]\nvalidation = 0.2\n";

static const char *folder(const char *name)
{
	static char path[16][128];
	static int next;
	next = (next + 1) % 16;
	snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
	return path[next];
}

enum { WORDS_MAX = 16 };

/* Returns the base job with some of its keys changed: "section.key=value …". */
static struct job job_of(const char *changes)
{
	struct job job;
	struct err e = ERR_INIT;
	char text[512], data[160];
	const char *words[WORDS_MAX] = { data };
	int n = 1;
	snprintf(text, sizeof text, "%s", changes);
	snprintf(data, sizeof data, "data.path=%s", folder("text"));
	assert_true(strlen(changes) < sizeof text);
	for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) {
		assert_true(n < WORDS_MAX);
		words[n++] = word;
	}
	if (job_load(folder("base.ini"), words, n, &job, &e))
		fail_msg("%s", e.text);
	return job;
}

static void supervisor_open(struct supervisor *v)
{
	v->loss = calloc(STEPS_MAX, sizeof *v->loss);
	v->ready = v->finished = v->ckpt = -1;
	auth_secret_new(v->secret);
	assert_int_equal(net_listen("127.0.0.1", &v->listener, v->address, NULL), 0);
	assert_int_equal(pthread_create(&v->thread, NULL, supervise_run, v), 0);
}

static void supervisor_fini(struct supervisor *v)
{
	free(v->loss);
	v->loss = NULL;
}

/* Trains in the run folder `name`. Returns what train_run returned. */
static int run_training(const char *name, const char *changes, const char *resume,
			struct supervisor *v, struct err *e)
{
	struct job job = job_of(changes);
	char hex[AUTH_SECRET_HEX];
	supervisor_open(v);
	auth_secret_hex(v->secret, hex);
	struct control_options opt = {
		.address = v->address,
		.secret = hex,
		.generation = 1,
		.rank = 0,
		.world = 1,
		.node = "here",
	};
	struct control *control;
	const struct msg_welcome *welcome;
	assert_int_equal(agent_control_open(&opt, &control, &welcome, NULL), 0);
	struct phases phases = { 0 };
	struct train_hooks hooks = agent_report_hooks(control);
	struct comm *world = world_alone();
	const struct layout alone = { .tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 };
	struct rank_view view;
	assert_int_equal(rank_view_init(&job, &alone, 0, &view, NULL), 0);
	struct train_env env = {
		.view = &view,
		.world = world,
		.hooks = &hooks,
		.run_dir = folder(name),
		.resume = resume,
		.generation = 1,
		.threads = 1,
		.phases = &phases,
	};
	int rc = train_run(&env, e);
	comm_close(world);
	rank_view_fini(&view);
	agent_control_close(control);
	pthread_join(v->thread, NULL);
	close(v->listener);
	return rc;
}

/* A run that resumes from a checkpoint must find the metrics of all earlier steps, although the
 * control channel may have lost some. */
static void call_it_off(enum log_level level, const char *text, void *arg)
{
	struct supervisor *v = arg;
	(void)level;
	if (strstr(text, "tried again for"))
		atomic_store(&v->stop_now, true);
}

static void no_checkpoint_is_committed_before_its_metrics_are_recorded(void **state)
{
	(void)state;
	struct supervisor v = { .records_nothing = true };
	struct err e = ERR_INIT;
	log_hook(LOG_WARN, call_it_off, &v);
	int rc = run_training("unrecorded", "checkpoint.every=4 network.timeout=0.2", "auto", &v,
			      &e);
	log_hook(LOG_WARN, NULL, NULL);
	assert_int_equal(rc, -1);
	/* The first failure was reported, and training continued. */
	assert_int_equal(v.series, 6);
	assert_int_equal(v.ckpt, -1);
	assert_non_null(strstr(e.text, "has not recorded the metrics up to step"));
	assert_int_not_equal(access(folder("unrecorded/ckpt/step-00000004"), F_OK), 0);
	assert_int_not_equal(access(folder("unrecorded/ckpt/step-00000006"), F_OK), 0);
	supervisor_fini(&v);
}

static void record_late(enum log_level level, const char *text, void *arg)
{
	struct supervisor *v = arg;
	(void)level;
	if (strstr(text, "tried again for"))
		atomic_store(&v->record_now, true);
}

/* An example is a supervisor that was stopped with Ctrl-Z for a while. */
static void the_last_checkpoint_waits_for_a_supervisor_that_is_late(void **state)
{
	(void)state;
	struct supervisor v = { .records_nothing = true };
	struct err e = ERR_INIT;
	log_hook(LOG_WARN, record_late, &v);
	int rc = run_training("late", "network.timeout=2", "auto", &v, &e);
	log_hook(LOG_WARN, NULL, NULL);
	assert_int_equal(rc, 0);
	assert_int_equal(v.ckpt, 6);
	assert_int_equal(access(folder("late/ckpt/step-00000006/MANIFEST.json"), F_OK), 0);
	supervisor_fini(&v);
}

static void a_run_goes_to_its_last_step_and_saves_it(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	assert_int_equal(run_training("whole",
				      "data.eval_every=2 data.eval_batches=3 checkpoint.every=4",
				      "auto", &v, &e),
			 0);
	assert_int_equal(v.ready, 0);
	assert_int_equal(v.last, 6);
	assert_int_equal(v.finished, 6);
	assert_int_equal(v.evals, 3);
	assert_int_equal(v.ckpt, 6);
	assert_true(v.loss[1] > 5 && v.loss[1] < 6 && v.eval_loss > 5 && v.eval_loss < 6);
	assert_int_equal(access(folder("whole/ckpt/step-00000004/MANIFEST.json"), F_OK), 0);
	assert_int_equal(access(folder("whole/ckpt/step-00000006/MANIFEST.json"), F_OK), 0);
	supervisor_fini(&v);
}

static void a_run_that_goes_on_gives_the_same_bits(void **state)
{
	(void)state;
	struct supervisor whole = { 0 }, rest = { 0 };
	struct err e = ERR_INIT;
	assert_int_equal(run_training("a", "checkpoint.every=2", "none", &whole, &e), 0);
	assert_int_equal(run_training("b", "", folder("a/ckpt/step-00000002"), &rest, &e), 0);
	assert_int_equal(rest.ready, 2);
	for (int step = 3; step <= 6; step++)
		assert_memory_equal(&whole.loss[step], &rest.loss[step], sizeof(double));
	/* The evaluation does not disturb the training. */
	supervisor_fini(&rest);
	assert_int_equal(run_training("c", "data.eval_every=1", "none", &rest, &e), 0);
	assert_memory_equal(&whole.loss[6], &rest.loss[6], sizeof(double));
	supervisor_fini(&whole);
	supervisor_fini(&rest);
}

static void a_finished_run_has_nothing_to_do(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	assert_int_equal(run_training("done", "", "auto", &v, &e), 0);
	supervisor_fini(&v);
	v = (struct supervisor){ 0 };
	assert_int_equal(run_training("done", "", "auto", &v, &e), 0);
	assert_int_equal(v.ready, 6);
	assert_int_equal(v.last, 0);
	assert_int_equal(v.finished, 6);
	assert_int_equal(v.ckpt, -1);
	supervisor_fini(&v);
}

static void a_stop_saves_when_it_is_asked_to(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	for (int checkpoint = 0; checkpoint <= 1; checkpoint++) {
		struct supervisor v = { .stop_after = 3, .checkpoint = checkpoint };
		const char *name = checkpoint ? "stop-save" : "stop";
		assert_int_equal(run_training(name, "job.steps=100000 checkpoint.every=0", "auto",
					      &v, &e),
				 0);
		assert_true(v.finished >= 3 && v.finished < 100000);
		assert_int_equal(v.last, v.finished);
		assert_int_equal(v.ckpt, checkpoint ? v.finished : -1);
		supervisor_fini(&v);
	}
}

static void numbers_that_blow_up_are_named_before_they_do_harm(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	assert_int_equal(
		run_training("nan",
			     "job.steps=1000 optimizer.lr=100 optimizer.weight_decay=1 "
			     "optimizer.clip=0 optimizer.warmup=0 optimizer.schedule=constant "
			     "optimizer.decay_steps=0",
			     "none", &v, &e),
		-1);
	assert_int_equal(e.code, ERR_NUMERIC);
	char step[32];
	snprintf(step, sizeof step, "step %lld:", (long long)v.last + 1);
	assert_non_null(strstr(e.text, step));
	assert_int_equal(v.finished, -1);
	supervisor_fini(&v);
}

static void another_seed_is_not_mixed_in(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	assert_int_equal(run_training("seed", "", "auto", &v, &e), 0);
	supervisor_fini(&v);
	v = (struct supervisor){ 0 };
	assert_int_equal(run_training("seed", "job.seed=4 job.steps=8", "auto", &v, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "job.seed = 3"));
	assert_null(strstr(e.text, "resume = none")); /* it is also refused */
	supervisor_fini(&v);
}

static void keep_warning(enum log_level level, const char *text, void *arg)
{
	(void)level;
	snprintf(arg, 1000, "%s", text);
}

static void another_split_of_the_data_is_warned_of(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	char said[1000] = "";
	log_hook(LOG_WARN, keep_warning, said);
	assert_int_equal(run_training("split", "", "auto", &v, &e), 0);
	supervisor_fini(&v);
	v = (struct supervisor){ 0 };
	assert_int_equal(run_training("split", "job.steps=8", "auto", &v, &e), 0);
	assert_string_equal(said, "");
	supervisor_fini(&v);
	v = (struct supervisor){ 0 };
	assert_int_equal(run_training("split", "job.steps=10 data.validation=0.1", "auto", &v, &e),
			 0);
	log_hook(LOG_WARN, NULL, NULL);
	assert_int_equal(v.ready, 8);
	assert_non_null(strstr(said, "data.validation = 0.2, but this run"));
	assert_non_null(strstr(said, "with 0.1:"));
	supervisor_fini(&v);
}

/* --- a full disk: files may not grow beyond a limit --- */

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int warnings;

static void make_room(enum log_level level, const char *text, void *arg)
{
	(void)level;
	(void)arg;
	if (!strstr(text, "tried again for"))
		return;
	warnings++;
	limit_files(RLIM_INFINITY);
}

static void a_full_disk_at_the_end_is_waited_for(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	warnings = 0;
	signal(SIGXFSZ, SIG_IGN);
	log_hook(LOG_WARN, make_room, NULL);
	limit_files(32768);
	int rc = run_training("full", "", "auto", &v, &e);
	limit_files(RLIM_INFINITY);
	log_hook(LOG_WARN, NULL, NULL);
	assert_int_equal(rc, 0);
	assert_int_equal(warnings, 1);
	assert_int_equal(v.finished, 6);
	assert_int_equal(v.ckpt, 6);
	supervisor_fini(&v);
}

static void a_stop_without_a_checkpoint_ends_the_wait_for_room(void **state)
{
	(void)state;
	struct supervisor v = { 0 };
	struct err e = ERR_INIT;
	log_hook(LOG_WARN, call_it_off, &v);
	limit_files(32768);
	int rc = run_training("full-stop", "", "auto", &v, &e);
	limit_files(RLIM_INFINITY);
	log_hook(LOG_WARN, NULL, NULL);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_FULL);
	assert_int_equal(v.finished, -1);
	supervisor_fini(&v);
}

static void make_text(void)
{
	struct buf text = BUF_INIT;
	for (int i = 0; i < 400; i++)
		buf_printf(&text, "%d times %d is %d. ", i, i, i * i);
	char path[128];
	snprintf(path, sizeof path, "%s", folder("source"));
	char *files[] = { path };
	struct pack_report report;
	if (file_replace(folder("base.ini"), base, sizeof base - 1, NULL) ||
	    file_replace(path, text.data, text.len, NULL) ||
	    data_pack_files(folder("text"), files, 1, &(struct document_options){ 0 }, &report,
			    NULL))
		abort();
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_checkpoint_is_committed_before_its_metrics_are_recorded),
		cmocka_unit_test(the_last_checkpoint_waits_for_a_supervisor_that_is_late),
		cmocka_unit_test(a_run_goes_to_its_last_step_and_saves_it),
		cmocka_unit_test(a_run_that_goes_on_gives_the_same_bits),
		cmocka_unit_test(a_finished_run_has_nothing_to_do),
		cmocka_unit_test(a_stop_saves_when_it_is_asked_to),
		cmocka_unit_test(numbers_that_blow_up_are_named_before_they_do_harm),
		cmocka_unit_test(another_seed_is_not_mixed_in),
		cmocka_unit_test(another_split_of_the_data_is_warned_of),
		cmocka_unit_test(a_full_disk_at_the_end_is_waited_for),
		cmocka_unit_test(a_stop_without_a_checkpoint_ends_the_wait_for_room),
	};
	if (!tmpdir_make(dir, sizeof dir))
		return 1;
	agent_control_block_signals();
	log_setup(2, LOG_ERROR, "test");
	alarm(PATIENCE_S);
	make_text();
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	return system(command) ? 1 : rc;
}
