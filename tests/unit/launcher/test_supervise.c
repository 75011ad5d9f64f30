/* Tests how the supervisor reacts to what agents do and fail to do. */
#include "tests/unit/launcher/harness.h"

static void start_run(void)
{
	supervise_start(h.supervisor);
	deliver_all();
}

static void start_training(void)
{
	start_run();
	train_all();
}

static void all_finish(int64_t step)
{
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_FINISHED, step);
	for (int i = 0; i < WORLD; i++)
		end_process(i, 0);
}

static void a_run_goes_from_hello_to_done(void **state)
{
	(void)state;
	start_run();
	connect_all();
	assert_true(h.peers[0].welcomed && h.peers[1].welcomed);
	assert_string_equal(h.peers[0].resume, "none");
	for (int i = 0; i < WORLD; i++) { /* each receives its own place and threads */
		const struct coords *c = &h.ranks[i].at;
		assert_int_equal(h.peers[i].threads, h.ranks[i].threads);
		assert_memory_equal(h.peers[i].at, ((int[]){ c->tp, c->cp, c->dp, c->pp }),
				    sizeof h.peers[i].at);
		assert_int_equal(h.peers[i].device, h.ranks[i].slot);
		assert_int_equal(h.peers[i].numa, h.devices[h.ranks[i].slot].numa);
		assert_string_equal(h.peers[i].cpus, h.devices[h.ranks[i].slot].cpus);
	}
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_READY, 0);
	send_step(&h.peers[1], MSG_METRICS, 1);
	assert_int_equal(count_events("first-step", "\"step\":1"), 1);
	assert_int_equal(exit_status(), -1);
	all_finish(10);
	assert_int_equal(exit_status(), STATUS_DONE);
	assert_int_equal(count_events("\"done\"", "\"status\":0"), 1);
}

/* A model and the time of its step, from which the contract's parts follow. */
static void plan_a_step(double seconds)
{
	struct plan *p = &h.first.plan;
	p->shape = (struct model_shape){ .layers = 1,
					 .hidden = 8,
					 .heads = 1,
					 .kv_heads = 1,
					 .head_dim = 8,
					 .ffn = 8,
					 .vocab = 8,
					 .seq = 8 };
	p->threads = 1;
	p->time.total = seconds;
}

/* Of GPUs the error of predictions is known: a step is within 12 % of what is published
 * (plan/cost/sureness.h). */
static void a_run_on_gpus_names_the_likely_time_of_a_step(void **state)
{
	bool last;
	(void)state;
	snprintf(h.kind.device, sizeof h.kind.device, "A100-SXM4-80GB");
	h.kind.device_flops = 312e12;
	h.first.job.precision.dtype = DTYPE_BF16;
	plan_a_step(0.1);
	start_training();
	assert_int_equal(count_events("\"plan\"", "\"least_s\":0.08928571"), 1);
	assert_int_equal(count_events("\"plan\"", "\"most_s\":0.113636"), 1);
	for (int step = 1; step <= 3; step++)
		send_message(&h.peers[0], MSG_METRICS,
			     msg_metrics_json(&(struct msg_metrics){ .step = step,
								     .step_s = 0.125,
								     .compute_s = 0.125,
								     .tokens = 512 }));
	all_finish(10);
	assert_int_equal(exit_status(), STATUS_DONE);
	assert_int_equal(count_events("\"contract\"", "\"least_s\":0.08928571"), 1);
	assert_int_equal(count_events("\"contract\"", "\"most_s\":0.113636"), 1);
	assert_int_equal(
		count_printed("the measured step is above the likely 89.3 ms to 114 ms", &last), 1);
}

static void on_processors_no_time_is_likely(void **state)
{
	(void)state;
	plan_a_step(0.1);
	start_training();
	for (int step = 1; step <= 3; step++)
		send_step(&h.peers[0], MSG_METRICS, step);
	all_finish(10);
	assert_int_equal(count_events("\"plan\"", "\"step_s\":0.1"), 1);
	assert_int_equal(count_events("\"contract\"", "\"measured\""), 1);
	assert_int_equal(count_events("\"least_s\"", ""), 0);
}

static void without_binding_agents_get_no_cores(void **state)
{
	(void)state;
	h.first.job.launch.bind = BIND_NONE;
	start_run();
	connect_all();
	assert_int_equal(h.peers[0].device, 1);
	assert_int_equal(h.peers[0].numa, -1);
	assert_string_equal(h.peers[0].cpus, "");
}

static void a_lost_rank_ends_the_generation_and_the_next_one_resumes(void **state)
{
	(void)state;
	unsigned char before[AUTH_SECRET_BYTES];
	start_training();
	send_step(&h.peers[1], MSG_METRICS, 1);
	send_step(&h.peers[0], MSG_CKPT, 1);
	memcpy(before, h.secret, sizeof before);
	end_rank(1);
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
	assert_true(h.peers[0].aborted);
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.generation, 2);
	assert_memory_not_equal(before, h.secret, sizeof before);
	train_all();
	assert_string_equal(h.peers[0].resume, "auto");
	all_finish(10);
	assert_int_equal(exit_status(), STATUS_DONE);
}

/* The slurm backend sees no agent end, but only its step. */
static void agents_whose_end_was_not_seen_are_named_to_the_next_ones(void **state)
{
	(void)state;
	start_training();
	h.keep_running = true;
	h.gone[1] = true;
	h.events.exited(h.events.arg, 1, SIGKILL);
	h.running = false;
	h.events.all_gone(h.events.arg);
	deliver_all();
	assert_int_equal(h.starts, 2);
	connect_all();
	assert_int_equal(h.peers[0].predecessors, 1);
	assert_int_equal(h.peers[1].predecessors, 1);
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_READY, 0);
	h.running = false;
	h.events.all_gone(h.events.arg);
	pass_time(2); /* the back-off */
	assert_int_equal(h.starts, 3);
	connect_all();
	assert_int_equal(h.peers[0].predecessors, WORLD); /* of the second generation only */
}

static void rank_0_is_notified_when_the_series_is_recorded(void **state)
{
	(void)state;
	start_training();
	send_step(&h.peers[1], MSG_METRICS, 1);
	assert_int_equal(h.peers[0].recorded, 0);
	send_step(&h.peers[1], MSG_SERIES, 1);
	assert_int_equal(h.peers[0].recorded, 1);
	assert_int_equal(h.peers[1].recorded, 0);
	/* malformed: the rank is lost */
	send_message(&h.peers[1], MSG_SERIES, json_pack("{s:s}", "step", "many"));
	assert_int_equal(count_events("rank-lost", "protocol"), 1);
}

static void without_a_checkpoint_the_jobs_resume_key_is_used(void **state)
{
	(void)state;
	start_training();
	send_step(&h.peers[1], MSG_METRICS, 1);
	end_rank(0);
	connect_all();
	assert_string_equal(h.peers[0].resume, "none");
}

static void restarts_without_progress_end(void **state)
{
	(void)state;
	start_run();
	for (int i = 0; exit_status() < 0 && i < 20; i++) {
		train_all();
		send_step(&h.peers[1], MSG_METRICS, 7);
		end_rank(1);
		pass_time(10);
	}
	assert_int_equal(exit_status(), STATUS_GAVE_UP);
	assert_int_equal(h.starts, 4);
	assert_int_equal(count_events("gave-up", "max_futile"), 1);
}

static void the_wait_between_restarts_can_be_stopped(void **state)
{
	(void)state;
	start_training();
	end_rank(1);
	train_all();
	end_rank(1);
	assert_int_equal(h.starts, 2); /* the third start waits */
	supervise_stop(h.supervisor, "Interrupt", false);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void no_restart_allowed_is_a_failed_job(void **state)
{
	(void)state;
	h.first.job.restart.max_restarts = 0;
	supervise_close(h.supervisor);
	const struct supervise_options o = {
		.loop = &h.loop,
		.job = &h.first.job,
		.machines = &h.first.cluster,
		.first = &h.first,
		.ops = &fake_ops,
		.run = h.run,
		.term = h.term,
		.listener = -1,
		.address = "",
		.limits = SUPERVISE_LIMITS,
		.now = fake_now,
	};
	assert_int_equal(supervise_open(&o, &h.supervisor, NULL), 0);
	h.fail_start = false;
	start_run();
	end_process(0, 127 << 8);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_FAILED);
}

static void a_start_that_fails_is_reported_at_once(void **state)
{
	(void)state;
	h.fail_start = true;
	start_run();
	assert_int_equal(exit_status(), STATUS_CANNOT_START);
	assert_int_equal(count_events("failed", "cannot start another process"), 1);
}

static void a_first_start_whose_helper_dies_is_tried_again(void **state)
{
	(void)state;
	h.helper_dies = 2;
	start_run();
	assert_int_equal(h.starts, 3);
	assert_int_equal(exit_status(), -1);
	assert_int_equal(count_events("start-again", "a helper process died"), 2);
	assert_int_equal(h.generation, 1); /* nobody knew of it yet */
	train_all();
	end_rank(1);
	assert_int_equal(h.generation, 2);
}

static void a_first_start_whose_helper_always_dies_ends(void **state)
{
	(void)state;
	h.helper_dies = 100;
	start_run();
	assert_int_equal(h.starts, 3);
	assert_int_equal(exit_status(), STATUS_CANNOT_START);
}

/* The agent's report is enough: no restart repairs a file that may not be opened or that is a
 * FIFO. */
static void an_error_that_a_restart_does_not_fix_fails_at_once(void **state)
{
	(void)state;
	static const char *const codes[] = { "denied", "corrupt" };
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		start_run();
		connect_all();
		send_message(&h.peers[0], MSG_FAILED,
			     msg_failed_json(&(struct msg_failed){
				     .code = codes[i], .text = "ledger.jsonl: cannot open" }));
		assert_int_equal(h.starts, 1);
		assert_int_equal(exit_status(), STATUS_FAILED);
		assert_int_equal(count_events("\"event\":\"restart\"", ""), 0);
		teardown(NULL);
		assert_int_equal(setup(NULL), 0);
	}
}

static void a_stop_lets_the_ranks_finish_together(void **state)
{
	(void)state;
	start_training();
	supervise_stop(h.supervisor, "Terminated", false);
	supervise_stop(h.supervisor, "Terminated", false); /* a second call has no effect */
	deliver_all();
	assert_true(h.peers[0].stopped && h.peers[1].stopped && h.peers[0].checkpoint);
	assert_int_equal(h.kills, 0);
	send_step(&h.peers[0], MSG_CKPT, 4);
	all_finish(4);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_second_interrupt_stops_at_once(void **state)
{
	(void)state;
	start_training();
	supervise_stop(h.supervisor, "Interrupt", false);
	supervise_stop(h.supervisor, "Interrupt", true);
	assert_int_equal(h.kills, 1);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(h.starts, 1);
}

static void stop_for(int seconds)
{
	for (int i = 0; i < seconds; i++) {
		send_step(&h.peers[0], MSG_PROGRESS, i);
		send_step(&h.peers[1], MSG_PROGRESS, i);
		pass_time(1);
	}
}

static void agents_that_do_not_stop_are_killed(void **state)
{
	(void)state;
	start_training();
	supervise_stop(h.supervisor, "Terminated", false);
	stop_for(130);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(count_events("stopped", "did not stop within"), 1);
}

static void a_long_checkpoint_gets_the_time_that_slurm_leaves(void **state)
{
	(void)state;
	h.first.job.slurm.signal_before = 600;
	start_training();
	supervise_stop(h.supervisor, "Terminated", false);
	stop_for(500);
	assert_int_equal(exit_status(), -1);
	stop_for(120);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_loss_while_stopping_does_not_restart(void **state)
{
	(void)state;
	start_training();
	supervise_stop(h.supervisor, "Terminated", false);
	end_rank(1);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(h.starts, 1);
}

static void a_stop_after_the_last_step_is_a_finished_job(void **state)
{
	(void)state;
	start_training();
	supervise_stop(h.supervisor, "Terminated", false);
	all_finish(10);
	assert_int_equal(exit_status(), STATUS_DONE);
}

static void a_signal_that_an_agent_got_stops_all(void **state)
{
	(void)state;
	start_training();
	send_message(&h.peers[1], MSG_SIGNAL, json_pack("{s:i}", "number", SIGTERM));
	send_message(&h.peers[0], MSG_SIGNAL, json_pack("{s:i}", "number", SIGTERM));
	assert_true(h.peers[0].stopped && h.peers[1].stopped);
	assert_int_equal(h.kills, 0);
}

static void a_hang_names_the_slowest_rank(void **state)
{
	(void)state;
	start_training();
	send_step(&h.peers[0], MSG_PROGRESS, 5);
	send_step(&h.peers[1], MSG_PROGRESS, 4);
	for (int i = 0; i < 50; i++) { /* heartbeats that report no progress */
		pass_time(1);
		send_step(&h.peers[0], MSG_PROGRESS, 5);
		send_step(&h.peers[1], MSG_PROGRESS, 4);
	}
	assert_int_equal(h.starts, 1);
	pass_time(11);
	assert_int_equal(count_events("\"how\":\"hung\"", "\"rank\":1"), 1);
	assert_int_equal(h.starts, 2);
}

/* Both ranks stop making progress; the supervisor detects that. */
static void hang_rank(void)
{
	start_training();
	h.first.job.restart.hang_timeout = 5;
	pass_time(5.2);
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 1);
}

static void the_wait_for_flight_recorders_is_limited(void **state)
{
	(void)state;
	start_training();
	h.peers[1].mute = true;
	h.keep_running = true;
	h.first.job.restart.hang_timeout = 5;
	pass_time(5.2);
	assert_true(h.peers[0].asked && h.peers[1].asked);
	assert_int_equal(h.kills, 0);
	pass_time(1.1);
	assert_int_equal(h.kills, 1);
}

/* Writes a script that replaces `muster-agent trace`. */
static void write_agent(const char *script)
{
	char dir[600];
	FILE *out = fopen(h.agent, "w");
	assert_true(out && fprintf(out, "#!/bin/sh\n%s\n", script) > 0 && !fclose(out) &&
		    !chmod(h.agent, 0700));
	snprintf(dir, sizeof dir, "mkdir -p %s/run/trace/gen-1", h.dir);
	assert_int_equal(system(dir), 0);
}

static void the_verdict_is_kept_with_the_generation_it_is_about(void **state)
{
	(void)state;
	write_agent("printf '{\"finding\": \"missing\", \"text\": \"rank 1 never came: %s\", "
		    "\"group\": null, \"op\": null, \"number\": 0, \"ranks\": [1], \"world\": 2, "
		    "\"missing\": []}' \"$*\"; exit 1");
	hang_rank();
	/* A real process, which takes real time. The ranks that are examined then answer in
	 * deliver_all(). */
	for (int i = 0; i < 1000 && !count_events("\"event\":\"verdict\"", ""); i++)
		uv_run(&h.loop, UV_RUN_ONCE);
	deliver_all();
	assert_int_equal(count_events("\"event\":\"verdict\"", "\"generation\":1,"), 1);
	assert_int_equal(
		count_events("\"finding\":\"missing\"", "rank 1 never came: trace --json "), 1);
	assert_int_equal(count_events("\"finding\":\"missing\"", "\"group\":null"), 1);
	assert_int_equal(h.starts, 2);
}

static void a_slow_verdict_does_not_delay_the_restart(void **state)
{
	(void)state;
	write_agent("exec sleep 1000");
	hang_rank();
	assert_int_equal(h.starts, 1);
	pass_time(1.1);
	assert_int_equal(
		count_events("\"event\":\"verdict\"", "longer than 1 s; run muster trace "), 1);
	assert_int_equal(h.starts, 2);
}

static void a_reader_of_the_recorders_that_fails_is_quoted(void **state)
{
	(void)state;
	write_agent("printf 'muster trace: no \\377\\n'; exit 2");
	hang_rank();
	for (int i = 0; i < 1000 && !count_events("\"event\":\"verdict\"", ""); i++)
		uv_run(&h.loop, UV_RUN_ONCE);
	assert_int_equal(count_events("\"event\":\"verdict\"", "muster trace: no ?"), 1);
}

static void all_gone_while_the_recorders_are_read_is_handled_later(void **state)
{
	(void)state;
	write_agent("exec sleep 1000");
	hang_rank();
	h.keep_running = true;
	end_process(0, 0);
	end_process(1, 0);
	pass_time(1.1);
	assert_int_equal(h.starts, 2);
}

/* An example is a checkpoint that takes long to write. */
static void progress_within_a_phase_is_not_a_hang(void **state)
{
	(void)state;
	start_training();
	for (int i = 0; i < 100; i++) {
		pass_time(1);
		send_message(&h.peers[0], MSG_PROGRESS,
			     msg_progress_json(&(struct msg_progress){
				     .step = 5, .phase = "commit", .count = i }));
		send_message(&h.peers[1], MSG_PROGRESS,
			     msg_progress_json(&(struct msg_progress){
				     .step = 5, .phase = "commit", .count = 7 }));
	}
	assert_int_equal(count_events("rank-lost", ""), 0);
	assert_int_equal(h.starts, 1);
}

static void a_rank_without_heartbeats_is_lost(void **state)
{
	(void)state;
	start_training();
	for (int i = 0; i < 16; i++) {
		send_step(&h.peers[0], MSG_PROGRESS, i);
		pass_time(1);
	}
	assert_int_equal(count_events("\"how\":\"silent\"", "\"rank\":1"), 1);
}

static void a_rank_whose_message_waits_in_the_socket_is_not_silent(void **state)
{
	(void)state;
	start_training();
	for (int i = 0; i < 15; i++) {
		send_step(&h.peers[0], MSG_PROGRESS, i);
		pass_time(0.95);
	}
	leave_message(&h.peers[1], MSG_PROGRESS, step_json(MSG_PROGRESS, 1));
	h.now += 0.9;
	supervise_tick(h.supervisor);
	assert_int_equal(count_events("\"how\":\"silent\"", ""), 0);
	for (int i = 0; i < 16; i++) {
		send_step(&h.peers[0], MSG_PROGRESS, 20 + i);
		pass_time(1);
	}
	assert_int_equal(count_events("\"how\":\"silent\"", "\"rank\":1"), 1);
}

static void a_pause_of_the_supervisor_blames_no_rank(void **state)
{
	(void)state;
	start_training();
	h.now += 3600;
	supervise_tick(h.supervisor);
	pass_time(5);
	assert_int_equal(count_events("rank-lost", ""), 0);
}

static void ranks_that_never_connect_are_named(void **state)
{
	(void)state;
	start_run();
	send_message(peer_open(0, h.secret, h.generation), MSG_HELLO, hello_json(0));
	for (int i = 0; i < 121; i++) {
		send_step(&h.peers[0], MSG_PROGRESS, i);
		pass_time(1);
	}
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
	assert_int_equal(count_events("rank-lost", "did not connect"), 1);
}

static void the_failed_rank_is_blamed_not_the_rank_that_reports_it(void **state)
{
	(void)state;
	start_training();
	send_message(
		&h.peers[0], MSG_FAILED,
		msg_failed_json(&(struct msg_failed){ .code = "peer", .text = "rank 1 is gone" }));
	shutdown(h.peers[0].fd, SHUT_RDWR);
	deliver_all();
	assert_int_equal(h.kills, 0);
	end_rank(1);
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
	assert_int_equal(count_events("rank-lost", ""), 1);
}

static void a_report_about_a_peer_counts_if_no_rank_fails(void **state)
{
	(void)state;
	start_training();
	send_message(
		&h.peers[0], MSG_FAILED,
		msg_failed_json(&(struct msg_failed){ .code = "peer", .text = "rank 1 is gone" }));
	pass_time(0.2);
	assert_int_equal(count_events("rank-lost", "\"rank\":0"), 1);
	assert_int_equal(h.starts, 2);
}

static void blame_peer(int rank, const char *text)
{
	send_message(&h.peers[rank], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = "timeout", .text = text }));
}

/* All ranks give up at once, as after a time-out. Each of them also leaves, but that is not another
 * cause. */
static void the_first_report_about_a_peer_counts(void **state)
{
	(void)state;
	write_agent("echo '{\"finding\": \"mismatch\", \"text\": \"both\", \"group\": null, "
		    "\"op\": null, "
		    "\"number\": 0, \"ranks\": [0, 1], \"world\": 2, \"missing\": []}'; exit 1");
	start_training();
	blame_peer(0, "rank 1 did not come");
	blame_peer(1, "rank 0 did not come");
	for (int i = 1; i >= 0; i--)
		end_process(i, 1 << 8);
	for (int i = 0; i < 1000 && h.starts < 2; i++)
		uv_run(&h.loop, UV_RUN_ONCE);
	assert_int_equal(count_events("rank-lost", ""), 1);
	assert_int_equal(count_events("rank-lost", "rank 1 did not come"), 1);
	assert_int_equal(count_events("\"event\":\"verdict\"", "both"), 1);
	assert_int_equal(h.starts, 2);
}

static void closed_ranks_are_not_asked_for_recorders(void **state)
{
	(void)state;
	write_agent("exec sleep 1000");
	start_training();
	h.keep_running = true;
	for (int i = 0; i < WORLD; i++) {
		blame_peer(i, "the other did not come");
		shutdown(h.peers[i].fd, SHUT_RDWR);
		deliver_all();
	}
	pass_time(0.2);
	assert_int_equal(count_events("rank-lost", "the other did not come"), 1);
	assert_int_equal(h.kills, 0); /* the recorders are being read */
	pass_time(1.1);
	assert_int_equal(h.kills, 1);
}

static void damaged_data_fails_without_a_restart(void **state)
{
	(void)state;
	start_run();
	connect_all();
	send_message(&h.peers[1], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = "corrupt",
							   .text = "tokens.bin: damaged" }));
	assert_int_equal(exit_status(), STATUS_FAILED);
	assert_int_equal(h.starts, 1);
}

static void messages_sent_before_the_exit_are_read(void **state)
{
	(void)state;
	start_training();
	for (int i = 0; i < WORLD; i++) { /* sent, but not yet read when the process is gone */
		json_t *body = step_json(MSG_FINISHED, 10);
		assert_int_equal(channel_send(h.peers[i].channel, MSG_FINISHED, body, NULL), 0);
		json_decref(body);
		struct buf *out = channel_out(h.peers[i].channel);
		assert_int_equal(send(h.peers[i].fd, out->data, out->len, 0), (ssize_t)out->len);
		buf_clear(out);
		end_process(i, 0);
	}
	deliver_all();
	assert_int_equal(exit_status(), STATUS_DONE);
}

static void a_second_hello_for_a_rank_is_refused(void **state)
{
	(void)state;
	start_run();
	send_message(peer_open(0, h.secret, h.generation), MSG_HELLO, hello_json(0));
	send_message(peer_open(2, h.secret, h.generation), MSG_HELLO, hello_json(0));
	assert_true(h.peers[2].closed && !h.peers[2].welcomed);
	assert_false(h.peers[0].closed);
	send_message(peer_open(1, h.secret, h.generation), MSG_HELLO, hello_json(1));
	assert_int_equal(count_events("\"event\":\"connected\"", ""), 1);
}

static void strangers_and_old_generations_are_refused(void **state)
{
	(void)state;
	unsigned char old[AUTH_SECRET_BYTES];
	start_training();
	memcpy(old, h.secret, sizeof old);
	end_rank(1);
	assert_int_equal(h.generation, 2);
	/* the secret of the generation before: the proofs do not match */
	send_message(peer_open(3, old, 1), MSG_HELLO, hello_json(0));
	assert_false(h.peers[3].welcomed || channel_ready(h.peers[3].channel));
	struct peer *p = peer_open(4, h.secret, h.generation);
	assert_true(send(p->fd,
			 "GET / HTTP/1.1\r\nHost: x\r\nAccept: everything, and a bit more\r\n\r\n",
			 64, 0) > 0);
	deliver_all();
	assert_true(p->closed);
	peer_open(5, h.secret, h.generation); /* proves itself, then sends nothing */
	pass_time(11);
	assert_true(h.peers[5].closed);
	train_all();
	assert_int_equal(count_events("\"ready\"", "\"generation\":2"), 1);
}

static void hellos_with_wrong_values_are_refused(void **state)
{
	(void)state;
	start_run();
	send_message(peer_open(2, h.secret, h.generation), MSG_HELLO, hello_json(WORLD));
	send_message(peer_open(3, h.secret, h.generation), MSG_HELLO, hello_json(-1));
	send_message(peer_open(4, h.secret, h.generation), MSG_HELLO,
		     json_pack("{s:s}", "rank", "0"));
	send_message(peer_open(5, h.secret, h.generation), MSG_FINISHED,
		     json_pack("{s:i}", "step", 10));
	send_message(peer_open(6, h.secret, h.generation), MSG_ABORT,
		     json_pack("{s:s}", "reason", "because"));
	for (int i = 2; i <= 6; i++)
		assert_true(h.peers[i].closed && !h.peers[i].welcomed);
	assert_int_equal(count_events("refused", ""), 5);
	train_all();
	assert_int_equal(h.starts, 1);
}

static void malformed_messages_lose_their_rank(void **state)
{
	(void)state;
	start_training();
	send_message(&h.peers[1], MSG_METRICS, json_pack("{s:s}", "step", "many"));
	assert_int_equal(count_events("\"how\":\"protocol\"", "\"rank\":1"), 1);
	assert_int_equal(
		count_events("rank-lost", "message metrics: field \\\"step\\\" is invalid"), 1);
	assert_int_equal(h.starts, 2);
	train_all();
	send_step(&h.peers[0], MSG_PROGRESS, 1);
	send_step(&h.peers[0], MSG_METRICS, 30);
	send_message(&h.peers[0], MSG_WELCOME, json_object()); /* an agent may not send this */
	assert_int_equal(count_events("\"how\":\"protocol\"", "\"rank\":0"), 1);
}

static void finished_processes_that_do_not_end_are_killed(void **state)
{
	(void)state;
	start_training();
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_FINISHED, 10);
	assert_int_equal(h.kills, 0);
	pass_time(11);
	assert_int_equal(exit_status(), STATUS_DONE);
}

static void a_complete_run_reports_that_it_was_complete(void **state)
{
	(void)state;
	start_run();
	connect_all();
	all_finish(10);
	assert_int_equal(exit_status(), STATUS_DONE);
	assert_int_equal(count_events("\"done\"", "\"step\":-1"), 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_run_goes_from_hello_to_done),
		T(a_run_on_gpus_names_the_likely_time_of_a_step),
		T(on_processors_no_time_is_likely),
		T(without_binding_agents_get_no_cores),
		T(a_lost_rank_ends_the_generation_and_the_next_one_resumes),
		T(agents_whose_end_was_not_seen_are_named_to_the_next_ones),
		T(rank_0_is_notified_when_the_series_is_recorded),
		T(without_a_checkpoint_the_jobs_resume_key_is_used),
		T(restarts_without_progress_end),
		T(the_wait_between_restarts_can_be_stopped),
		T(no_restart_allowed_is_a_failed_job),
		T(a_start_that_fails_is_reported_at_once),
		T(a_first_start_whose_helper_dies_is_tried_again),
		T(a_first_start_whose_helper_always_dies_ends),
		T(an_error_that_a_restart_does_not_fix_fails_at_once),
		T(a_stop_lets_the_ranks_finish_together),
		T(a_second_interrupt_stops_at_once),
		T(agents_that_do_not_stop_are_killed),
		T(a_long_checkpoint_gets_the_time_that_slurm_leaves),
		T(a_loss_while_stopping_does_not_restart),
		T(a_stop_after_the_last_step_is_a_finished_job),
		T(a_signal_that_an_agent_got_stops_all),
		T(a_hang_names_the_slowest_rank),
		T(the_wait_for_flight_recorders_is_limited),
		T(the_verdict_is_kept_with_the_generation_it_is_about),
		T(a_slow_verdict_does_not_delay_the_restart),
		T(a_reader_of_the_recorders_that_fails_is_quoted),
		T(all_gone_while_the_recorders_are_read_is_handled_later),
		T(progress_within_a_phase_is_not_a_hang),
		T(a_rank_without_heartbeats_is_lost),
		T(a_rank_whose_message_waits_in_the_socket_is_not_silent),
		T(a_pause_of_the_supervisor_blames_no_rank),
		T(ranks_that_never_connect_are_named),
		T(the_failed_rank_is_blamed_not_the_rank_that_reports_it),
		T(a_report_about_a_peer_counts_if_no_rank_fails),
		T(the_first_report_about_a_peer_counts),
		T(closed_ranks_are_not_asked_for_recorders),
		T(damaged_data_fails_without_a_restart),
		T(messages_sent_before_the_exit_are_read),
		T(a_second_hello_for_a_rank_is_refused),
		T(strangers_and_old_generations_are_refused),
		T(hellos_with_wrong_values_are_refused),
		T(malformed_messages_lose_their_rank),
		T(finished_processes_that_do_not_end_are_killed),
		T(a_complete_run_reports_that_it_was_complete),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
