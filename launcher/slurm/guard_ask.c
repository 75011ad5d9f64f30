#include "launcher/slurm/guard_ask.h"

#include "base/net.h"
#include "launcher/child.h"
#include "launcher/slurm/job_record.h"
#include "launcher/slurm/setting.h"
#include "launcher/slurm/slurm.h"
#include "topo/discover/scontrol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_TIMEOUT 8.0
#define CONNECT_TIMEOUT 3.0

static int run_scontrol(char *const *argv, struct buf *output, struct err *e)
{
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	return launcher_child_run(&c, COMMAND_TIMEOUT, output, e);
}

static int find_slurmd_port(void)
{
	char *argv[] = { "scontrol", "show", "config", NULL }, value[8] = "";
	struct buf config = BUF_INIT;
	if (!run_scontrol(argv, &config, NULL))
		slurm_setting(buf_str(&config), "SlurmdPort", value, sizeof value);
	buf_fini(&config);
	return atoi(value) > 0 ? atoi(value) : SLURMD_PORT;
}

/* False: the host's address is unknown, because the controller has not answered. */
static bool reach_host(const char *host, bool *answers, bool *down, struct err *why)
{
	char *argv[] = { "scontrol", "--oneliner", "show", "node", (char *)(uintptr_t)host, NULL };
	char address[GUARD_NAME + 16], port[8];
	struct buf line = BUF_INIT;
	int fd = -1;
	bool known = !run_scontrol(argv, &line, why);
	if (known) {
		int other = topo_scontrol_field(buf_str(&line), "Port", port, sizeof port)
				    ? SLURMD_PORT
				    : find_slurmd_port();
		*down = slurm_guard_node_down(buf_str(&line));
		known = slurm_guard_node_parse(buf_str(&line), other, address, sizeof address);
	}
	buf_fini(&line);
	if (!known)
		return false;
	*answers = !net_connect(address, CONNECT_TIMEOUT, &fd, why);
	if (*answers)
		close(fd);
	return true;
}

void slurm_guard_ask(const char *job, struct guard_answer *out, char detail[GUARD_DETAIL])
{
	char *argv[] = { "scontrol", "--oneliner", "show", "job", (char *)(uintptr_t)job, NULL };
	struct buf line = BUF_INIT;
	struct guard_job j;
	struct err e = ERR_INIT;
	*out = (struct guard_answer){ 0 };
	int rc = run_scontrol(argv, &line, &e);
	if (rc && strstr(e.text, "Invalid job id")) {
		out->answered = true;
		snprintf(detail, GUARD_DETAIL, "the controller no longer knows the job");
	} else if (rc || !slurm_guard_job_parse(buf_str(&line), &j)) {
		snprintf(detail, GUARD_DETAIL, "the controller does not answer: %.200s",
			 rc ? e.text : "no job in its answer");
	} else {
		out->running = j.running;
		out->batch = j.batch;
		out->may_requeue = j.may_requeue;
		out->gpus = j.gpus;
		bool asks = j.running && j.batch && j.host[0];
		out->answered = !asks ||
				reach_host(j.host, &out->host_answers, &out->host_down, &e);
		snprintf(detail, GUARD_DETAIL, "the job is %.31s; its batch host %.60s%s %s%.100s",
			 j.state, j.host, out->host_down ? " is down and" : "",
			 !asks               ? "was not asked"
			 : out->host_answers ? "answers"
					     : "does not answer: ",
			 asks && !out->host_answers ? e.text : "");
	}
	buf_fini(&line);
}

static int command_job(char *const *argv, struct err *e)
{
	struct buf output = BUF_INIT;
	int rc = run_scontrol(argv, &output, e);
	buf_fini(&output);
	return rc;
}

int slurm_guard_requeue(const char *job, struct err *e)
{
	return command_job((char *[]){ "scontrol", "requeue", (char *)(uintptr_t)job, NULL }, e);
}

int slurm_guard_cancel(const char *job, struct err *e)
{
	return command_job((char *[]){ "scancel", (char *)(uintptr_t)job, NULL }, e);
}
