/* inject_supervisor: faults of `muster run` itself. */
#include "base/clock.h"
#include "launcher/drill/injections.h"

#include <signal.h>

enum { STOPPED_SECONDS = 3 };

static int signal_supervisor(struct drill_run *r, int signal, struct err *e)
{
	if (!r->child)
		return err_set(e, ERR_PEER, "the run has ended already");
	r->injected = clock_s();
	launcher_child_signal(r->child, signal);
	return 0;
}

int drill_kill_supervisor(struct drill_run *r, struct err *e)
{
	return signal_supervisor(r, SIGKILL, e);
}

int drill_stop_supervisor(struct drill_run *r, struct err *e)
{
	if (signal_supervisor(r, SIGSTOP, e))
		return -1;
	int rc = drill_run_wait(r, NULL, STOPPED_SECONDS, "", e);
	drill_continue_supervisor(r);
	return rc;
}

void drill_continue_supervisor(struct drill_run *r)
{
	if (r->child)
		launcher_child_signal(r->child, SIGCONT);
}

int drill_terminate_supervisor(struct drill_run *r, struct err *e)
{
	return signal_supervisor(r, SIGTERM, e);
}
