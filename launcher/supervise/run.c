#include "launcher/supervise/supervise.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNALS = 4, TICK_MS = 50 };

struct run_loop {
	struct supervisor *supervisor;
	uv_signal_t signals[SIGNALS];
	int watched;
	uv_timer_t tick;
	bool interrupted;
};

static void on_tick(uv_timer_t *timer)
{
	supervise_tick(((struct run_loop *)timer->data)->supervisor);
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct run_loop *run = handle->data;
	char reason[64];
	snprintf(reason, sizeof reason, "%s", strsignal(number));
	/* Only a person sends SIGINT twice; batch systems repeat the other signals. */
	bool again = number == SIGINT && run->interrupted;
	run->interrupted = true;
	supervise_stop(run->supervisor, reason, again);
}

/* SIGHUP stays ignored if it was ignored from the start (nohup). */
static void watch_signals(struct run_loop *run, uv_loop_t *loop)
{
	static const int numbers[SIGNALS] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
	for (int i = 0; i < SIGNALS; i++) {
		struct sigaction old;
		if (numbers[i] == SIGHUP && !sigaction(SIGHUP, NULL, &old) &&
		    old.sa_handler == SIG_IGN)
			continue;
		uv_signal_t *handle = &run->signals[run->watched];
		if (uv_signal_init(loop, handle))
			continue;
		handle->data = run;
		run->watched++;
		uv_signal_start(handle, on_signal, numbers[i]);
	}
}

static int report_failure(const struct supervise_options *o, const struct err *e)
{
	supervise_terminal_event(o->term, TONE_BAD, "failed", "%s", e->text);
	return STATUS_CANNOT_START;
}

int supervise_run(const struct supervise_options *o)
{
	struct run_loop run = { 0 };
	struct err e = ERR_INIT;
	int status = STATUS_CANNOT_START;
	if (supervise_open(o, &run.supervisor, &e))
		return report_failure(o, &e);
	watch_signals(&run, o->loop);
	uv_timer_init(o->loop, &run.tick);
	run.tick.data = &run;
	uv_timer_start(&run.tick, on_tick, TICK_MS, TICK_MS);
	supervise_start(run.supervisor);
	while (!supervise_done(run.supervisor, &status))
		uv_run(o->loop, UV_RUN_ONCE);
	for (int i = 0; i < run.watched; i++)
		uv_close((uv_handle_t *)&run.signals[i], NULL);
	uv_close((uv_handle_t *)&run.tick, NULL);
	supervise_close(run.supervisor);
	uv_run(o->loop, UV_RUN_DEFAULT); /* closes the handles */
	return status;
}
