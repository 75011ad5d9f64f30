/* Tests what a loss means: which symptoms lead to which fault. */
#include "launcher/supervise/faults.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct example {
	const char *fault;
	struct symptom seen;
};

/* clang-format off */

/* At least one of each fault. */
static const struct example examples[] = {
	{ "agent-killed",     { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGKILL, .started = true } },
	{ "agent-killed",     { .how = LOST_EXITED, .code = ERR_PEER, .signal = SIGTERM } },
	{ "agent-crashed",    { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGSEGV, .started = true } },
	{ "agent-crashed",    { .how = LOST_EXITED, .code = ERR_PEER, .signal = SIGABRT } },
	{ "agent-crashed",    { .how = LOST_EXITED, .code = ERR_PEER, .signal = SIGILL } },
	{ "agent-crashed",    { .how = LOST_EXITED, .code = ERR_PEER, .signal = SIGFPE } },
	{ "bus-error",        { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGBUS, .started = true } },
	{ "out-of-memory",    { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGKILL, .started = true, .out_of_memory = true } },
	{ "out-of-memory",    { .how = LOST_CLOSED, .code = ERR_PEER, .started = true, .out_of_memory = true } },
	{ "cpu-limit",        { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGXCPU, .started = true } },
	{ "agent-exited",     { .how = LOST_EXITED, .code = ERR_PEER, .status = 3, .started = true } },
	{ "agent-exited",     { .how = LOST_EXITED, .code = ERR_PEER, .status = 127, .started = true } },
	{ "program-missing",  { .how = LOST_EXITED, .code = ERR_PEER, .status = 126 } },
	{ "program-missing",  { .how = LOST_EXITED, .code = ERR_PEER, .status = 127 } },
	{ "program-missing",  { .how = LOST_EXITED, .code = ERR_PEER, .status = 2, .said = SLURM_SAID_NO_PROGRAM } },
	{ "file-missing",     { .how = LOST_FAILED, .code = ERR_NOTFOUND, .started = true } },
	{ "file-missing",     { .how = LOST_START, .code = ERR_NOTFOUND } },
	{ "not-permitted",    { .how = LOST_FAILED, .code = ERR_DENIED, .started = true } },
	{ "disk-full",        { .how = LOST_FAILED, .code = ERR_FULL, .started = true } },
	{ "disk-error",       { .how = LOST_FAILED, .code = ERR_IO, .started = true } },
	{ "data-corrupt",     { .how = LOST_FAILED, .code = ERR_CORRUPT, .started = true } },
	{ "job-wrong",        { .how = LOST_FAILED, .code = ERR_USAGE, .started = true } },
	{ "job-wrong",        { .how = LOST_FAILED, .code = ERR_UNSUPPORTED, .started = true } },
	{ "job-wrong",        { .how = LOST_FAILED, .code = ERR_NOFIT, .started = true } },
	{ "numeric",          { .how = LOST_FAILED, .code = ERR_NUMERIC, .started = true } },
	{ "wrong-results",    { .how = LOST_FAILED, .code = ERR_NUMERIC, .started = true, .wrong_results = true } },
	{ "replicas-differ",  { .how = LOST_FAILED, .code = ERR_REPLICAS, .started = true, .wrong_results = true } },
	{ "no-memory",        { .how = LOST_FAILED, .code = ERR_NOMEM, .started = true } },
	{ "device-lost",      { .how = LOST_FAILED, .code = ERR_DEVICE, .started = true } },
	{ "device-lost",      { .how = LOST_FAILED, .code = ERR_DEVICE, .started = true, .node = NODE_DRAIN } },
	{ "agent-stuck",      { .how = LOST_FAILED, .code = ERR_STUCK, .started = true } },
	{ "task-failed",      { .how = LOST_FAILED, .code = ERR_TASK, .status = 1, .started = true } },
	{ "task-crashed",     { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGSEGV, .started = true } },
	{ "task-crashed",     { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGABRT, .started = true } },
	{ "task-crashed",     { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGILL, .started = true } },
	{ "task-crashed",     { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGFPE, .started = true } },
	{ "task-crashed",     { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGBUS, .started = true } },
	{ "cpu-limit",        { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGXCPU, .started = true } },
	{ "task-killed",      { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGKILL, .started = true } },
	{ "task-killed",      { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGTERM, .started = true } },
	{ "task-out-of-memory", { .how = LOST_FAILED, .code = ERR_TASK, .signal = SIGKILL, .started = true, .out_of_memory = true } },
	/* it blames a peer, and its library ended it or it exited */
	{ "task-connection",  { .how = LOST_FAILED, .code = ERR_PEER, .signal = SIGABRT, .started = true, .program = true } },
	{ "task-connection",  { .how = LOST_FAILED, .code = ERR_PEER, .status = 1, .started = true, .program = true } },
	{ "peer",             { .how = LOST_FAILED, .code = ERR_PEER, .started = true, .program = true } }, /* its agent did */
	{ "node-down",        { .how = LOST_FAILED, .code = ERR_PEER, .status = 1, .started = true, .program = true, .node = NODE_DOWN } },
	{ "pmix-missing",     { .how = LOST_EXITED, .code = ERR_PEER, .said = SLURM_SAID_NO_PMIX } },
	{ "pmix-refused",     { .how = LOST_EXITED, .code = ERR_PEER, .pmix_refused = true, .said = SLURM_SAID_NO_PMIX } },
	{ "pmix-refused",     { .how = LOST_EXITED, .code = ERR_PEER, .pmix_refused = true, .status = 1 } },
	{ "helper-lost",      { .how = LOST_CLOSED, .code = ERR_PEER, .started = true, .helper_lost = true } },
	{ "helper-lost",      { .how = LOST_EXITED, .code = ERR_PEER, .signal = SIGKILL, .helper_lost = true } },
	{ "node-down",        { .how = LOST_EXITED, .code = ERR_PEER, .signal = SIGKILL, .helper_lost = true, .node = NODE_DOWN } },
	{ "step-ended",       { .how = LOST_EXITED, .code = ERR_PEER } },
	{ "step-ended",       { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGKILL, .started = true, .said = SLURM_SAID_CANCELLED } },
	{ "task-failed",      { .how = LOST_FAILED, .code = ERR_TASK, .started = true, .program = true, .status = 3 } },
	{ "task-ended-early", { .how = LOST_FAILED, .code = ERR_TASK, .started = true, .program = true } },
	{ "task-killed",      { .how = LOST_FAILED, .code = ERR_TASK, .started = true, .program = true, .signal = SIGKILL } },
	{ "task-crashed",     { .how = LOST_FAILED, .code = ERR_TASK, .started = true, .program = true, .signal = SIGABRT } },
	{ "task-out-of-memory", { .how = LOST_FAILED, .code = ERR_TASK, .started = true, .program = true, .signal = SIGKILL, .out_of_memory = true } },
	{ "cpu-limit",        { .how = LOST_FAILED, .code = ERR_TASK, .started = true, .program = true, .signal = SIGXCPU } },
	{ "task-hang",        { .how = LOST_HUNG, .code = ERR_TIMEOUT, .started = true, .program = true } },
	{ "task-numeric",     { .how = LOST_FAILED, .code = ERR_NUMERIC, .started = true, .program = true } },
	{ "step-refused",     { .how = LOST_EXITED, .code = ERR_PEER, .said = SLURM_SAID_NO_MEMORY } },
	{ "controller-away",  { .how = LOST_EXITED, .code = ERR_PEER, .said = SLURM_SAID_NO_CONTROLLER } },
	{ "controller-away",  { .how = LOST_SILENT, .code = ERR_TIMEOUT, .manager_silent = true } },
	{ "allocation-over",  { .how = LOST_EXITED, .code = ERR_PEER, .said = SLURM_SAID_EXPIRED } },
	/* it explains no agent that ran */
	{ "connection-lost",  { .how = LOST_CLOSED, .code = ERR_PEER, .started = true, .said = SLURM_SAID_NO_MUNGE } },
	{ "munge-away",       { .how = LOST_EXITED, .code = ERR_PEER, .said = SLURM_SAID_NO_MUNGE } },
	{ "node-down",        { .how = LOST_SILENT, .code = ERR_TIMEOUT, .started = true, .node = NODE_DOWN } },
	{ "node-down",        { .how = LOST_FAILED, .code = ERR_PEER, .started = true, .node = NODE_DOWN } },
	{ "node-down",        { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGKILL, .started = true, .said = SLURM_SAID_NODE_FAILED } },
	{ "node-drain",       { .how = LOST_CLOSED, .code = ERR_PEER, .started = true, .node = NODE_DRAIN } },
	{ "agent-killed",     { .how = LOST_CLOSED, .code = ERR_PEER, .signal = SIGKILL, .started = true, .node = NODE_DRAIN } },
	{ "node-fail",        { .how = LOST_CLOSED, .code = ERR_PEER, .started = true, .node = NODE_FAIL } },
	{ "node-left",        { .how = LOST_CLOSED, .code = ERR_PEER, .started = true, .node = NODE_LEFT } },
	{ "node-unreachable", { .how = LOST_SILENT, .code = ERR_TIMEOUT, .started = true, .node = NODE_UNREACHABLE } },
	{ "hang",             { .how = LOST_HUNG, .code = ERR_TIMEOUT, .started = true } },
	{ "silence",          { .how = LOST_SILENT, .code = ERR_TIMEOUT, .started = true } },
	{ "deadlock",         { .how = LOST_HUNG, .code = ERR_TIMEOUT, .started = true, .hang = HANG_COLLECTIVES } },
	{ "agent-stopped",    { .how = LOST_SILENT, .code = ERR_TIMEOUT, .started = true, .hang = HANG_STOPPED } },
	{ "kernel-stuck",     { .how = LOST_HUNG, .code = ERR_TIMEOUT, .started = true, .hang = HANG_KERNEL } },
	{ "connection-lost",  { .how = LOST_CLOSED, .code = ERR_PEER, .started = true } },
	{ "protocol",         { .how = LOST_PROTOCOL, .code = ERR_PROTO, .started = true } },
	{ "protocol",         { .how = LOST_FAILED, .code = ERR_PROTO, .started = true } },
	{ "peer",             { .how = LOST_FAILED, .code = ERR_PEER, .started = true } },
	{ "peer",             { .how = LOST_FAILED, .code = ERR_NET, .started = true } },
	{ "timeout",          { .how = LOST_FAILED, .code = ERR_TIMEOUT, .started = true } },
	{ "start-failed",     { .how = LOST_START, .code = ERR_PEER } },
	{ "bug",              { .how = LOST_FAILED, .code = ERR_INTERNAL, .started = true } },
	{ "unknown",          { .how = LOST_FAILED, .code = ERR_NONE, .started = true } },
};

/* clang-format on */

enum { EXAMPLES = sizeof examples / sizeof *examples };

static void symptoms_lead_to_their_fault(void **state)
{
	(void)state;
	for (int i = 0; i < EXAMPLES; i++)
		assert_string_equal(supervise_fault_of(&examples[i].seen)->name, examples[i].fault);
}

static bool has_example(const struct fault *f)
{
	for (int i = 0; i < EXAMPLES; i++)
		if (!strcmp(examples[i].fault, f->name))
			return true;
	return false;
}

static void every_row_is_reached_and_complete(void **state)
{
	(void)state;
	int n;
	const struct fault *rows = supervise_faults(&n);
	for (int i = 0; i < n; i++) {
		const struct fault *f = &rows[i];
		assert_true(has_example(f));
		assert_ptr_equal(supervise_fault_named(f->name), f); /* no name is used twice */
		assert_true(strlen(f->text) > 10 && f->text[strlen(f->text) - 1] != '.');
		/* A person can mend all but a node that was taken away. */
		assert_true(!strcmp(f->name, "node-left") ||
			    (*f->remedy && f->remedy[strlen(f->remedy) - 1] == '.'));
		assert_int_equal(f->counts, f->retry != RETRY_WAIT);
		assert_true(!f->suspect || f->owner == OWNER_NODE || f->owner == OWNER_UNKNOWN);
		assert_true(strlen(supervise_owner_word(f->owner)) > 0);
	}
	assert_null(supervise_fault_named("none such"));
}

static void what_cannot_get_better_is_not_tried_again(void **state)
{
	(void)state;
	static const char *const never[] = { "not-permitted", "pmix-missing", "cpu-limit" };
	static const char *const once[] = { "program-missing", "file-missing", "job-wrong",
					    "data-corrupt" };
	static const char *const wait[] = { "controller-away", "munge-away", "step-refused" };
	for (size_t i = 0; i < sizeof never / sizeof *never; i++)
		assert_int_equal(supervise_fault_named(never[i])->retry, RETRY_NEVER);
	for (size_t i = 0; i < sizeof once / sizeof *once; i++)
		assert_int_equal(supervise_fault_named(once[i])->retry, RETRY_ONCE);
	for (size_t i = 0; i < sizeof wait / sizeof *wait; i++)
		assert_int_equal(supervise_fault_named(wait[i])->retry, RETRY_WAIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(symptoms_lead_to_their_fault),
		cmocka_unit_test(every_row_is_reached_and_complete),
		cmocka_unit_test(what_cannot_get_better_is_not_tried_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
