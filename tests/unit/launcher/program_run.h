/* program_run — the harness's run with a program of the user: what its agents send. */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_PROGRAM_RUN_H
#define MUSTER_TESTS_UNIT_LAUNCHER_PROGRAM_RUN_H

#include "tests/unit/launcher/harness.h"

/* The harness's run, with a program. */
static inline int setup_program(void **state)
{
	if (setup(state))
		return -1;
	supervise_close(h.supervisor);
	struct job *job = &h.first.job;
	snprintf(job->job.program, sizeof job->job.program, "train");
	snprintf(job->job.name, sizeof job->job.name, "run");
	snprintf(job->restart.retry_on, sizeof job->restart.retry_on, "any");
	job->program.show = SHOW_NONE;
	h.tasks = true;
	return open_supervisor(&fake_ops);
}

static inline json_t *meeting_json(void)
{
	return json_pack("{s:{s:s, s:[i,i]}, s:[i]}", "values", "address", "here", "ports", 1, 2,
			 "wants", 0);
}

static inline void start_tasks(void)
{
	connect_all();
	send_message(&h.peers[0], MSG_ENDPOINTS, meeting_json());
	for (int i = 0; i < h.world; i++) {
		send_message(&h.peers[i], MSG_TASK,
			     msg_task_json(&(struct msg_task){
				     .pid = 200 + i, .start = 1, .pid_space = 7, .boot = "boot" }));
		send_step(&h.peers[i], MSG_READY, 0);
	}
}

static inline void start_run(void)
{
	supervise_start(h.supervisor);
	deliver_all();
	start_tasks();
}

static inline void send_output(int rank, const char *line, int64_t left_out)
{
	json_t *lines = json_pack("[s]", line);
	send_message(&h.peers[rank], MSG_OUTPUT,
		     msg_output_json(&(struct msg_output){ .lines = lines, .left_out = left_out }));
	json_decref(lines);
}

/* The task of the rank ended like this, and its last line was `line`. */
static inline void fail_task(int rank, enum err_code code, int status, const char *line)
{
	json_t *lines = json_pack("[s]", line);
	send_message(&h.peers[rank], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = err_word(code),
							   .text = "the task ended",
							   .has_status = true,
							   .status = status,
							   .has_last_lines = true,
							   .last_lines = lines }));
	json_decref(lines);
}

/* Agents that were told to leave do so after they have ended their tasks. */
static inline void agents_leave(void)
{
	for (int i = 0; i < h.world; i++)
		end_process(i, 1 << 8);
	deliver_all();
}

/* The others are waited for until it is known who failed first. */
static inline void lose_task(int rank, int status, const char *line)
{
	fail_task(rank, ERR_TASK, status, line);
	pass_time(0.2);
	agents_leave();
}

static inline void begin(int rank, int64_t step, double seconds)
{
	send_message(&h.peers[rank], MSG_BEGAN,
		     msg_began_json(&(struct msg_began){ .step = step, .seconds = seconds }));
}

static inline void work(int rank, int64_t step, int64_t count)
{
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){
			     .step = step, .phase = "running", .count = count, .done = step }));
}

static inline int printed(const char *text)
{
	bool last;
	return count_printed(text, &last);
}

static inline void all_finish(void)
{
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_FINISHED, 0);
	for (int i = 0; i < WORLD; i++)
		end_process(i, 0);
	deliver_all();
}

#endif
