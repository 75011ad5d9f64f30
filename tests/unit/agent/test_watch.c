/*
 * Tests what the thread that watches a rank's node and device reports, and how it ends. An agent watches a GPU of the
 * double of NVIDIA's library, and the test plays its supervisor.
 *
 * Nothing depends on time: after each window the watch waits until the supervisor has received all that was reported,
 * and then the double shows the machine of the next window. What the host itself shows may change in any window. So a
 * message that the double gives no reason for is accepted if it has news.
 */
#include "agent/watch.h"
#include "tests/unit/agent/control_play.h"
#include "tests/unit/nvml_double.h"

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>

enum { STEP = 12, WINDOWS = 8, PEER = 3 };

static const char gpu[] = "0000:36:00.0"; /* number 1 of the double's machine */
static const double window_s = 0.06, hour_s = 3600;

/* What the watch meets, window by window. */
static struct {
	const char *machine[WINDOWS + 1]; /* of the double; NULL after the last one */
	double bytes[WINDOWS];            /* that a link moves */
} scene;

/* --- the agent ---------------------------------------------------------------------------------- */

static struct control *control;
static atomic_bool scene_over;

static void show_machine(const char *machine)
{
	if (setenv("NVML_DOUBLE", machine, 1))
		abort();
}

/* Ends the window with this number, from 1 on, once the supervisor has all reports of it. */
static void end_window(int window)
{
	agent_control_send(control, MSG_METRICS, json_pack("{s:i}", "step", window));
	while (agent_control_save_asked(control) < window)
		poll(NULL, 0, 1);
	if (scene.machine[window])
		show_machine(scene.machine[window]);
	else
		atomic_store(&scene_over, true);
}

/* In place of libcomm's: the watch calls it at the end of each window, after the report of its health. */
int comm_links(struct comm *c, struct comm_link *out, int most)
{
	static struct comm_link link = { .group = "dp", .peer = PEER };
	static int window;
	(void)c;
	if (atomic_load(&scene_over) || most < 1)
		return 0;
	link.bytes += scene.bytes[window];
	link.busy_s += 1000;
	end_window(++window);
	*out = link;
	return scene.bytes[window - 1] > 0;
}

/* The texts of the options are gone when this returns. */
static struct agent_watch *open_watch(struct control *c, double seconds)
{
	static char world; /* comm_links() above does not look at it */
	char address[sizeof gpu], disk[] = "/tmp";
	strcpy(address, gpu);
	const struct watch_options o = { .control = c,
					 .world = (struct comm *)&world,
					 .window_s = seconds,
					 .gpu = address,
					 .disk = disk };
	struct agent_watch *w = NULL;
	struct err e = ERR_INIT;
	if (agent_watch_open(&o, &w, &e))
		fprintf(stderr, "%s\n", e.text);
	memset(address, 'x', sizeof address - 1);
	memset(disk, 'x', sizeof disk - 1);
	return w;
}

static bool has_watch_thread(void)
{
	DIR *d = opendir("/proc/self/task");
	bool found = false;
	for (struct dirent *at; d && !found && (at = readdir(d));) {
		char path[300], name[32] = "";
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", at->d_name);
		FILE *f = fopen(path, "re");
		found = f && fgets(name, sizeof name, f) && !strcmp(name, "muster-watch\n");
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

static int play_scene(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	control = c;
	agent_control_progress(c, STEP, "forward");
	show_machine(scene.machine[0]);
	struct agent_watch *w = open_watch(c, window_s);
	if (!w)
		return 1;
	while (!atomic_load(&scene_over))
		poll(NULL, 0, 1);
	agent_watch_close(w);
	agent_control_send(c, MSG_FINISHED, NULL);
	return AS_IT_MUST;
}

/* Opens a watch whose window does not end, and closes it. */
static int open_and_close(struct control *c, const char *machine, bool thread_stays)
{
	show_machine(machine);
	struct agent_watch *w = open_watch(c, hour_s);
	if (!w)
		return 1;
	agent_watch_close(w);
	while (has_watch_thread() != thread_stays)
		poll(NULL, 0, 1);
	agent_control_send(c, MSG_FINISHED, json_object());
	return AS_IT_MUST;
}

static int close_soon(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	return open_and_close(c, "dgx-h100", false);
}

static int close_beside_a_driver_that_hangs(struct stage *s, struct control *c,
					    const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	return open_and_close(c, "dgx-h100,stuck", true);
}

/* --- the supervisor ----------------------------------------------------------------------------- */

/* What the supervisor has received about a window. */
struct window {
	struct msg_health health; /* its texts and findings are those of `body` */
	json_t *body;             /* NULL: nothing */
	bool at_once;             /* before anything that the agent has sent later */
	json_t *links;            /* of the window before; NULL: nothing */
};

static struct supervisor v;
static struct window before, now; /* before: the last one with a message */

static void window_fini(struct window *w)
{
	json_decref(w->body);
	json_decref(w->links);
	memset(w, 0, sizeof *w);
}

static void take(const struct msg *m, bool ended)
{
	if (m->type == MSG_HEALTH) {
		assert_null(now.body);
		now.body = json_incref(m->body);
		now.at_once = !ended;
		assert_int_equal(msg_health_read(now.body, &now.health, NULL), 0);
	} else if (m->type == MSG_LINKS) {
		assert_null(now.links);
		now.links = json_incref(m->body);
	}
}

/* Receives all about the next window. The agent sends what waits before each MSG_PROGRESS, so the second one that follows
 * the end of the window follows its reports, too. */
static void next_window(void)
{
	static const int enough = 2;
	struct msg_save ended = { 0 };
	if (now.body) {
		window_fini(&before);
		before = now;
		now = (struct window){ 0 };
	}
	window_fini(&now);
	for (int beats = 0; beats < enough;) {
		struct msg m;
		assert_int_equal(receive_message(&v, &m), 1);
		if (m.type == MSG_METRICS)
			ended.number = (int)json_integer_value(json_object_get(m.body, "step"));
		beats += m.type == MSG_PROGRESS && ended.number;
		take(&m, ended.number);
		msg_fini(&m);
	}
	send_message(&v, MSG_SAVE, msg_save_json(&ended));
}

static struct msg_finding finding_at(const struct window *w, size_t i)
{
	struct msg_finding f;
	assert_int_equal(msg_finding_read(json_array_get(w->health.findings, i), &f, NULL), 0);
	return f;
}

static bool has_finding(const char *kind, struct msg_finding *out)
{
	for (size_t i = 0; i < json_array_size(now.health.findings); i++) {
		*out = finding_at(&now, i);
		if (!strcmp(out->kind, kind))
			return true;
	}
	return false;
}

static bool differs(double value, double from)
{
	return fabs(value - from) > 0.1 * from;
}

static bool has_news(void)
{
	size_t n = json_array_size(now.health.findings);
	bool news = n != json_array_size(before.health.findings) ||
		    differs(now.health.clock, before.health.clock) ||
		    differs(now.health.gpu_clock, before.health.gpu_clock);
	for (size_t i = 0; i < n && !news; i++) {
		struct msg_finding a = finding_at(&before, i), b = finding_at(&now, i);
		news = b.alarm || strcmp(a.kind, b.kind) || strcmp(a.object, b.object) ||
		       fabs(a.share - b.share) > 0.2;
	}
	return news;
}

static void expect_health(double gpu_clock)
{
	next_window();
	assert_non_null(now.body);
	assert_float_equal(now.health.gpu_clock, gpu_clock, 1e-9);
}

/* The double shows what it showed before. */
static void expect_no_health(void)
{
	next_window();
	assert_true(!now.body || has_news());
}

static void start_scene(void)
{
	start_agent(&v, agent_main, play_scene);
	let_in(&v);
}

/* The rest of the scene says nothing that the test asks about. */
static void end_scene(void)
{
	struct msg m = { 0 };
	do {
		msg_fini(&m);
		assert_int_equal(receive_message(&v, &m), 1);
	} while (m.type != MSG_FINISHED);
	msg_fini(&m);
	assert_int_equal(status_of(&v), AS_IT_MUST);
}

static void set_machines(const char *const *machines, int n)
{
	memcpy(scene.machine, machines, (size_t)n * sizeof *machines);
}

/* --- tests -------------------------------------------------------------------------------------- */

static void the_first_window_is_reported_whatever_it_shows(void **state)
{
	(void)state;
	scene.machine[0] = "dgx-h100";
	start_scene();
	expect_health(1980);
	assert_int_equal(now.health.step, STEP);
	assert_true(now.health.clock >= 0);
	for (size_t i = 0; i < json_array_size(now.health.findings); i++) {
		struct msg_finding f = finding_at(&now, i);
		assert_string_equal(f.object, "");
		assert_false(f.node); /* another rank watches what they share */
	}
	end_scene();
}

static void a_window_is_reported_if_it_has_news(void **state)
{
	(void)state;
	static const char *const machines[] = { "dgx-h100",         "dgx-h100",
						"dgx-h100",         "dgx-h100,crawl=1",
						"dgx-h100,crawl=1", "dgx-h100,hot=1",
						"dgx-h100,hot=1",   "dgx-h100" };
	struct msg_finding f;
	set_machines(machines, 8);
	start_scene();
	expect_health(1980);
	expect_no_health();
	expect_no_health();
	expect_health(345);
	expect_no_health();
	expect_health(1980);
	assert_true(has_finding("gpu-slow", &f));
	assert_string_equal(f.object, "GPU 0000:36:00.0");
	assert_float_equal(f.share, 1, 1e-9);
	assert_false(f.alarm || f.node);
	assert_non_null(strstr(f.text, "because it is too hot"));
	expect_no_health();
	expect_health(1980); /* it is over */
	assert_false(has_finding("gpu-slow", &f));
	end_scene();
}

static void a_defect_is_an_alarm_at_once_and_once(void **state)
{
	(void)state;
	static const char *const machines[] = { "dgx-h100", "dgx-h100,remap-pending=1",
						"dgx-h100,remap-pending=1",
						"dgx-h100,remap-pending=1" };
	struct msg_finding f;
	set_machines(machines, 4);
	start_scene();
	expect_health(1980);
	expect_health(1980);
	assert_true(now.at_once);
	assert_true(has_finding("remap-pending", &f));
	assert_true(f.alarm);
	assert_string_equal(f.object, "GPU 0000:36:00.0");
	for (int i = 0; i < 2; i++) {
		expect_no_health();
		assert_true(!now.body || (has_finding("remap-pending", &f) && !f.alarm));
	}
	end_scene();
}

static void expect_links(double rate)
{
	struct msg_links m;
	struct msg_link link;
	next_window();
	assert_int_equal(now.links != NULL, rate > 0);
	if (!now.links)
		return;
	assert_int_equal(msg_links_read(now.links, &m, NULL), 0);
	assert_int_equal(json_array_size(m.links), 1);
	assert_int_equal(msg_link_read(json_array_get(m.links, 0), &link, NULL), 0);
	assert_string_equal(link.group, "dp");
	assert_int_equal(link.peer, PEER);
	assert_float_equal(link.rate, rate, 1e-9);
	assert_float_equal(link.share, 1, 1e-9);
}

/* Those of a window come with the next one. */
static void links_are_reported_if_they_have_changed(void **state)
{
	(void)state;
	static const double bytes[] = { 1e6, 1e6, 1e6, 5e5, 5e5, 5e5 };
	memcpy(scene.bytes, bytes, sizeof bytes);
	for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
		scene.machine[i] = "dgx-h100";
	start_scene();
	expect_links(0);
	expect_links(1000);
	expect_links(0);
	expect_links(0);
	expect_links(500);
	expect_links(0);
	end_scene();
}

/* Nothing is reported about a window that has not ended. */
static void play_close(scenario *agent)
{
	start_agent(&v, agent_main, agent);
	let_in(&v);
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	assert_int_equal(status_of(&v), AS_IT_MUST);
}

static void the_close_does_not_wait_for_the_window(void **state)
{
	(void)state;
	play_close(close_soon);
}

static void a_thread_in_a_driver_that_hangs_is_left_behind(void **state)
{
	(void)state;
	play_close(close_beside_a_driver_that_hangs);
}

static void a_watch_that_was_not_opened_can_be_closed(void **state)
{
	(void)state;
	agent_watch_close(NULL);
}

static int set_up(void **state)
{
	(void)state;
	memset(&scene, 0, sizeof scene);
	v.agent = 0;
	return 0;
}

/* Without its supervisor an agent ends, whatever it waits for. */
static int tear_down(void **state)
{
	(void)state;
	window_fini(&before);
	window_fini(&now);
	if (v.agent)
		end_agent(&v);
	return 0;
}

static int load_double(void **state)
{
	char library[NVML_DOUBLE_PATH];
	(void)state;
	/* A later load of the library's name finds it. */
	return nvml_double_find(library) || !dlopen(library, RTLD_NOW) ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_window_is_reported_whatever_it_shows,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_window_is_reported_if_it_has_news, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_defect_is_an_alarm_at_once_and_once, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(links_are_reported_if_they_have_changed, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(the_close_does_not_wait_for_the_window, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_thread_in_a_driver_that_hangs_is_left_behind,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_watch_that_was_not_opened_can_be_closed, set_up,
						tear_down),
	};
	alarm(PATIENCE_S); /* an agent that hangs ends with its supervisor */
	return cmocka_run_group_tests(tests, load_double, NULL);
}
