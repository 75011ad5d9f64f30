/*
 * messages — what the supervisor and the agents send each other over the control channel.
 *
 * Each message is a row of MSG_TYPES and a table of its fields (base/fields.h). For the message
 * hello they generate MSG_HELLO, struct msg_hello, msg_hello_json() and msg_hello_read(), so that
 * both ends use the same names and types.
 *
 * To add a message:
 *   1. add its row at the end of MSG_TYPES, because a type's number is its position, and its table;
 *   2. send it: helper_line_send() in a helper, agent_control_send() in the agent (agent/metrics/report.c for what training
 *      reports), launcher_connection_send() in the supervisor;
 *   3. handle it: a row in `handlers` of launcher/supervise/messages.c or of agent/control_messages.c, or
 *      for helpers in launcher/slurm/relay.c or launcher/helper/helper.c, for the burn-in in
 *      launcher/supervise/burn_in.c or agent/tools/bench_node_serve.c;
 *   4. increase MSG_VERSION if a peer without the change cannot work with it.
 */
#ifndef MUSTER_BASE_MESSAGES_H
#define MUSTER_BASE_MESSAGES_H

#include "base/fields.h"
#include "base/step_parts.h"
#include "base/time_parts.h"

enum {
	MSG_VERSION = 15,
	CONSOLE_VERSION =
		1, /* of the messages console_*, for consoles of another version of muster */
	GUARD_GENERATION = 1, /* of all messages to and from a guard, which outlives generations */
	CONSOLE_GENERATION = 1, /* of all messages to and from a console */
	BURN_IN_GENERATION =
		1, /* of all messages to and from a burn-in, which precedes generations */
	TRACE_STEPS_MOST = 1000 /* that a run records on request at once */
};

/* clang-format off */

/* type, name, table of fields, sender, doc */
#define MSG_TYPES(X) \
	X(MSG_HELLO,     hello,    MSG_HELLO_FIELDS,    "agent",      "the first message after the handshake") \
	X(MSG_READY,     ready,    MSG_READY_FIELDS,    "agent",      "the communicators are up and the state is loaded; training starts") \
	X(MSG_METRICS,   metrics,  MSG_METRICS_FIELDS,  "agent",      "one per step, from one rank that has the loss (last stage, tp 0, cp 0, dp 0)") \
	X(MSG_EVAL,      eval,     MSG_EVAL_FIELDS,     "agent",      "one per evaluation, from the rank that sends metrics") \
	X(MSG_PROGRESS,  progress, MSG_PROGRESS_FIELDS, "agent",      "every heartbeat, and soon after the trainer moved, unless the first rank of the node reports it: node_progress") \
	X(MSG_LOG,       log,      MSG_LOG_FIELDS,      "agent",      "a warning or an error") \
	X(MSG_CKPT,      ckpt,     MSG_CKPT_FIELDS,     "agent",      "world rank 0 has committed a checkpoint") \
	X(MSG_SIGNAL,    signal,   MSG_SIGNAL_FIELDS,   "agent",      "the agent got SIGTERM, SIGINT or SIGUSR1") \
	X(MSG_FAILED,    failed,   MSG_FAILED_FIELDS,   "agent",      "the agent cannot continue; it exits after this, or waits for regroup if the error is of another rank") \
	X(MSG_FINISHED,  finished, MSG_FINISHED_FIELDS, "agent",      "the agent has done its work; it exits after this") \
	X(MSG_WELCOME,   welcome,  MSG_WELCOME_FIELDS,  "supervisor", "the answer to hello: the job and this rank's part of it") \
	X(MSG_STOP,      stop,     MSG_STOP_FIELDS,     "supervisor", "stop at the next step boundary, all ranks at the same one") \
	X(MSG_ABORT,     abort,    MSG_ABORT_FIELDS,    "supervisor", "leave at once") \
	X(MSG_DUMP,      dump,     MSG_DUMP_FIELDS,     "supervisor", "write the flight recorder into RUN/trace/gen-<generation>") \
	X(MSG_DUMPED,    dumped,   MSG_DUMPED_FIELDS,   "agent",      "the answer to dump") \
	X(MSG_SERIES,    series,   MSG_SERIES_FIELDS,   "agent",      "the rank that sends metrics has sent all up to this step; its checkpoint follows") \
	X(MSG_RECORDED,  recorded, MSG_RECORDED_FIELDS, "supervisor", "to world rank 0: the run folder holds the series up to this step") \
	X(MSG_GUARD_HELLO, guard_hello, MSG_GUARD_HELLO_FIELDS, "guard", "the first message of a guard after the handshake") \
	X(MSG_ALIVE,     alive,    MSG_ALIVE_FIELDS,    "supervisor", "to a guard, every second; the guard answers with the same message") \
	X(MSG_RELEASE,   release,  MSG_RELEASE_FIELDS,  "supervisor", "to a guard: the run has ended, or another guard has taken over") \
	X(MSG_HELPER_HELLO,  helper_hello,  MSG_HELPER_HELLO_FIELDS,  "helper", "the first message of the helper of a node after the handshake") \
	X(MSG_HELPER_START,  helper_start,  MSG_HELPER_START_FIELDS,  "supervisor", "the answer to helper_hello: the agents that the helper starts") \
	X(MSG_HELPER_PART,   helper_part,   MSG_HELPER_PART_FIELDS,   "helper, supervisor", "a part of what ranks have put before a fence: from a helper, those of its node; from the supervisor, those of all nodes") \
	X(MSG_HELPER_NEXT,   helper_next,   MSG_HELPER_NEXT_FIELDS,   "helper", "a part has come; the supervisor may send the next one") \
	X(MSG_HELPER_EXITED, helper_exited, MSG_HELPER_EXITED_FIELDS, "helper", "an agent of the node has ended") \
	X(MSG_BAD_STEP,  bad_step, MSG_BAD_STEP_FIELDS, "agent",      "the numbers of a step are bad, and nothing was updated; every rank sends it, and failed follows") \
	X(MSG_BURN_IN_ORDER,  burn_in_order,  MSG_BURN_IN_ORDER_FIELDS,  "supervisor", "to the burn-in of a node: what it measures next") \
	X(MSG_BURN_IN_CARD,   burn_in_card,   MSG_BURN_IN_CARD_FIELDS,   "burn-in, supervisor", "what one end of a link publishes for the other end; the supervisor forwards it") \
	X(MSG_BURN_IN_RESULT, burn_in_result, MSG_BURN_IN_RESULT_FIELDS, "burn-in", "the answer to burn_in_order") \
	X(MSG_HEALTH,    health,   MSG_HEALTH_FIELDS,   "agent",      "what a rank, its device and its node showed in a window, when it has changed, unless node_progress says it") \
	X(MSG_EXAMINE,   examine,  MSG_EXAMINE_FIELDS,  "supervisor", "find out what a process of the agent's host does: itself, or another agent, which does not answer") \
	X(MSG_EXAMINED,  examined, MSG_EXAMINED_FIELDS, "agent",      "an answer to examine: at once what the kernel shows, and in the last one also a function") \
	X(MSG_LINKS,     links,    MSG_LINKS_FIELDS,    "agent",      "how fast a rank's bytes got to other ranks over the network in a window, when it has changed, unless node_progress says it") \
	X(MSG_REGROUP,   regroup,  MSG_REGROUP_FIELDS,  "supervisor", "the generation is lost: abort its communicators, keep the process, and answer with idle") \
	X(MSG_IDLE,      idle,     MSG_IDLE_FIELDS,     "agent",      "the agent has left its generation; it waits for the welcome of the next one") \
	X(MSG_ENDPOINTS, endpoints, MSG_ENDPOINTS_FIELDS, "agent",    "what the rank publishes for the others, and whose it needs, in a generation that does not use PMIx") \
	X(MSG_WORLD_ENDPOINTS, world_endpoints, MSG_WORLD_ENDPOINTS_FIELDS, "supervisor", "what the ranks that the agent has asked for have published, once all have; one message or more, in the order of its list. To tasks of a program: what rank 0 has published") \
	X(MSG_CKPT_LOCAL, ckpt_local, MSG_CKPT_FIELDS,  "agent",      "world rank 0 has seen a checkpoint committed in the folders of the nodes") \
	X(MSG_TIMES,     times,    MSG_TIMES_FIELDS,    "agent",      "every few seconds unless node_progress says it, when a checkpoint begins, and before finished, idle and failed: where a rank's time went since it was ready") \
	X(MSG_SAVE,      save,     MSG_SAVE_FIELDS,     "supervisor", "write a checkpoint after the step, all ranks after the same one, and train on") \
	X(MSG_SAVE_FAILED, save_failed, MSG_SAVE_FAILED_FIELDS, "agent", "world rank 0: the checkpoint that save asked for was not committed") \
	X(MSG_CONSOLE_HELLO,  console_hello,  MSG_CONSOLE_HELLO_FIELDS,  "console", "the first message of a console after the handshake") \
	X(MSG_CONSOLE_ASK,    console_ask,    MSG_CONSOLE_ASK_FIELDS,    "console", "what the owner of the run wants to know or have done") \
	X(MSG_CONSOLE_ANSWER, console_answer, MSG_CONSOLE_ANSWER_FIELDS, "supervisor", "the answer to console_ask") \
	X(MSG_TRACE,     trace,    MSG_TRACE_FIELDS,    "supervisor", "record the next steps in detail, all ranks the same ones") \
	X(MSG_TRACED,    traced,   MSG_TRACED_FIELDS,   "agent",      "the answer to trace, once the rank's file is written or cannot be") \
	X(MSG_TASK,      task,     MSG_TASK_FIELDS,     "agent",      "the task of the program has started") \
	X(MSG_TASK_FAILED, task_failed, MSG_TASK_FAILED_FIELDS, "agent", "the task has ended otherwise than with status 0; unless that was a stop, the message failed follows when nothing of it is left") \
	X(MSG_OUTPUT,    output,   MSG_OUTPUT_FIELDS,   "agent",      "lines that the task has printed, for the terminal; none: it has printed some that nobody sees (program.silence)") \
	X(MSG_BEGAN,     began,    MSG_BEGAN_FIELDS,    "agent",      "the task has reported its first step through the client, before the first message metrics") \
	X(MSG_CLIENT_CKPT, client_ckpt, MSG_CLIENT_CKPT_FIELDS, "agent", "the task has saved a checkpoint of its own") \
	X(MSG_NODE_PROGRESS, node_progress, MSG_NODE_PROGRESS_FIELDS, "agent", "from the first rank of a node: what progress, times, health and links say, for those of the node's ranks that have news (agent/node_relay.h)") \
	X(MSG_COLLECT,   collect,  MSG_COLLECT_FIELDS,  "supervisor", "move the log of a rank from this node's folder to the run folder (log.local)") \
	X(MSG_COLLECTED, collected, MSG_COLLECTED_FIELDS, "agent",    "the answer to collect; also when the agent has done so by itself, because its rank has failed")

#define MSG_HELLO_FIELDS(F) \
	F(rank,    INT,  REQUIRED, "the agent's rank") \
	F(world,   INT,  REQUIRED, "number of ranks") \
	F(node,    TEXT, REQUIRED, "host name") \
	MSG_PROCESS_FIELDS(F) \
	F(cpus,    TEXT, REQUIRED, "CPUs the agent may run on, such as \"0-3,8\"") \
	F(version, INT,  REQUIRED, "MSG_VERSION of the agent")

/* Names a process for ever, as struct process_id does (base/process_id.h). */
#define MSG_PROCESS_FIELDS(F) \
	F(pid,       INT,   REQUIRED, "process id") \
	F(start,     COUNT, REQUIRED, "clock ticks from the boot to the start of the process; 0: unknown") \
	F(pid_space, COUNT, REQUIRED, "inode of its PID namespace; 0: unknown") \
	F(boot,      TEXT,  REQUIRED, "random id of the boot; \"\": unknown")

#define MSG_READY_FIELDS(F) \
	F(step,    COUNT, REQUIRED, "finished steps that training continues from") \
	F(samples, COUNT, REQUIRED, "samples consumed up to there") \
	F(from,    LINE,  OPTIONAL, "where the state was loaded from: \"memory\", or a checkpoint's path; absent: it is the initial one") \
	F(phases,  JSON,  REQUIRED, "seconds of each phase of the start, by name")

#define MSG_METRICS_FIELDS(F) \
	F(step,          COUNT,  REQUIRED, "finished steps") \
	F(samples,       COUNT,  REQUIRED, "samples consumed since the run began") \
	F(tokens,        COUNT,  REQUIRED, "tokens of this step") \
	F(peak_bytes,    COUNT,  REQUIRED, "peak device memory") \
	F(loss,          NUMBER, REQUIRED, "training loss") \
	F(grad_norm,     NUMBER, REQUIRED, "norm of the gradient before clipping") \
	F(lr,            NUMBER, REQUIRED, "learning rate") \
	F(step_s,        NUMBER, REQUIRED, "seconds of the step, the sum of its parts") \
	STEP_PARTS(STEP_PART_FIELD, F) \
	F(cross_entropy, NUMBER, OPTIONAL, "with experts: the part of the loss that is cross-entropy") \
	F(balance_loss,  NUMBER, OPTIONAL, "with experts: the part that is load balancing") \
	F(z_loss,        NUMBER, OPTIONAL, "with experts: the part that is the router's z-loss") \
	F(loss_scale,    NUMBER, OPTIONAL, "in fp16: the scale of the gradients") \
	F(skipped,       FLAG,   OPTIONAL, "in fp16: whether the gradients overflowed and nothing was updated")

#define MSG_EVAL_FIELDS(F) \
	F(step, COUNT,  REQUIRED, "finished steps") \
	F(loss, NUMBER, REQUIRED, "mean loss over the evaluation's samples")

#define MSG_PROGRESS_FIELDS(F) \
	F(step,  INT64, REQUIRED, "the step the trainer is in; -1 before it knows") \
	F(phase, TEXT,  REQUIRED, "what the trainer does, such as \"forward\"") \
	F(count, INT64, REQUIRED, "grows with each thing the trainer does") \
	F(active, COUNT, REQUIRED, "of a program: grows while its task uses a core or prints something") \
	F(done,  COUNT,  REQUIRED, "steps that this agent has finished") \
	F(own_s, NUMBER, REQUIRED, "seconds of these steps that it spent on its samples, on forward and on backward") \
	F(delay_s, NUMBER, REQUIRED, "seconds in which its training thread could run but got no core") \
	F(stalled_s, NUMBER, REQUIRED, "seconds in which no thread of it ran although one was due: it was stopped")

#define MSG_TIMES_FIELDS(F) \
	F(step,       COUNT, REQUIRED, "finished steps, of which these are the times") \
	F(peak_bytes, COUNT, REQUIRED, "peak device memory") \
	F(us,         JSON,  REQUIRED, "a list: microseconds of each part that a rank reports (time_reported_json)")

#define MSG_NODE_PROGRESS_FIELDS(F) \
	F(progress, JSON, REQUIRED, "a list: a row of each rank (msg_progress_row)") \
	F(times,    JSON, REQUIRED, "a list: a row of each rank that has any (msg_times_row)") \
	F(reports,  JSON, REQUIRED, "a list: a row of each other message that a rank would have sent (msg_report_row)")

#define MSG_LOG_FIELDS(F) \
	F(level, TEXT, REQUIRED, "\"warn\" or \"error\"") \
	F(text,  LINE, REQUIRED, "the line")

#define MSG_CKPT_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "the checkpoint's step") \
	F(path,    TEXT,   REQUIRED, "its folder") \
	F(bytes,   COUNT,  REQUIRED, "its size") \
	F(seconds, NUMBER, REQUIRED, "from the snapshot to the commit") \
	F(stall_s, NUMBER, REQUIRED, "seconds training was held up")

#define MSG_SIGNAL_FIELDS(F) \
	F(number, INT, REQUIRED, "the signal")

#define MSG_FAILED_FIELDS(F) \
	F(code, TEXT, REQUIRED, "err_word() of the cause") \
	F(text, LINE, REQUIRED, "the error message") \
	F(status, INT, OPTIONAL, "how the task of a program ended, as waitpid() sets it") \
	F(last_lines, JSON, OPTIONAL, "of its output: a list of texts") \
	F(blame, JSON, OPTIONAL, "the ranks that wrong numbers were traced to: struct msg_blame")

/* The member `blame` of failed. */
#define MSG_BLAME_FIELDS(F) \
	F(ranks,   JSON,  REQUIRED, "a list of ranks") \
	F(suspect, FLAG,  REQUIRED, "whether their nodes are suspects: it is a fault of hardware") \
	F(step,    COUNT, REQUIRED, "the step") \
	F(kind,    TEXT,  REQUIRED, "what was wrong: weights, optimizer-state, activations or gradient") \
	F(tensor,  TEXT,  REQUIRED, "the tensor; \"\": none in particular")

#define MSG_FINISHED_FIELDS(F) \
	F(step,       COUNT, REQUIRED, "finished steps") \
	F(peak_bytes, COUNT, REQUIRED, "peak device memory of the rank") \
	F(phases,     JSON,  REQUIRED, "seconds of each phase of the run, by name")

#define MSG_WELCOME_FIELDS(F) \
	F(generation,   COUNT,  REQUIRED, "the generation that it is about") \
	F(rank,         INT,    REQUIRED, "the agent's rank in it") \
	F(world,        INT,    REQUIRED, "number of ranks") \
	F(pmix,         FLAG,   REQUIRED, "whether the ranks find each other by PMIx; otherwise by endpoints") \
	F(warm,         FLAG,   REQUIRED, "whether the agent waits for regroup if another rank fails") \
	F(job,          TEXT,   REQUIRED, "text of the resolved job file") \
	F(threads,      INT,    REQUIRED, "compute threads of the rank") \
	F(run,          TEXT,   REQUIRED, "the run folder") \
	F(resume,       TEXT,   REQUIRED, "\"none\", a checkpoint's folder, or \"auto\": world rank 0 finds the last valid one") \
	F(coords,       JSON,   REQUIRED, "the rank's coordinates: struct msg_coords") \
	F(node,         TEXT,   REQUIRED, "the node's name") \
	F(node_index,   INT,    REQUIRED, "the node's number in the plan") \
	F(leaf,         INT,    REQUIRED, "the number of the switch that the node is attached to; -1: unknown") \
	F(copies,       FLAG,   REQUIRED, "whether copies of the state in the agents' memory may be used") \
	F(heartbeat_s,  NUMBER, REQUIRED, "seconds between two messages progress") \
	F(silent_s,     NUMBER, REQUIRED, "seconds without a message after which the supervisor counts the agent as dead") \
	F(group_secret, TEXT,   REQUIRED, "64 hex digits: the key of what the ranks of this generation publish through PMIx") \
	F(device,       INT,    REQUIRED, "the rank's device, by its number on the node") \
	F(bus,          TEXT,   REQUIRED, "the device's PCI address; \"\": none") \
	F(memory,       NUMBER, REQUIRED, "bytes that the rank needs by the plan") \
	F(node_ranks,   INT,    REQUIRED, "ranks of the node") \
	F(leader,       INT,    REQUIRED, "the first rank of the node") \
	F(here,         JSON,   OPTIONAL, "to that rank: a list of the node's ranks, ascending") \
	F(near,         JSON,   OPTIONAL, "to that rank: a list of the first ranks of the nodes next to it in the tree over the nodes, the parent first; -1: it has none") \
	F(cpus,         TEXT,   REQUIRED, "CPUs next to the device; \"\": unknown, or the rank is not bound") \
	F(numa,         INT,    REQUIRED, "NUMA domain next to the device; -1: unknown, or the rank is not bound") \
	F(watches_node, FLAG,   REQUIRED, "whether this rank watches what all ranks of its node share") \
	F(predecessors, JSON,   OPTIONAL, "agents of earlier generations that may still run on the agent's host: a list of struct msg_predecessor") \
	F(skips,        JSON,   OPTIONAL, "samples that rollbacks skip: a list of struct msg_skip") \
	F(program,      JSON,   OPTIONAL, "the place of a program's task: struct msg_program")

/* The member `program` of welcome. */
#define MSG_PROGRAM_FIELDS(F) \
	F(local_rank,   INT,  REQUIRED, "number of the task among those of its node, in the order of the ranks") \
	F(group_rank,   INT,  REQUIRED, "number of the node among those that have tasks") \
	F(group_world,  INT,  REQUIRED, "how many nodes have tasks") \
	F(devices,      TEXT, REQUIRED, "device of each task of the node in the order of the local ranks, such as 0,1,3,2") \
	F(restarts,     INT,  REQUIRED, "restarts of the run so far") \
	F(max_restarts, INT,  REQUIRED, "[restart] max_restarts") \
	F(run_id,       TEXT, REQUIRED, "name of the run, equal in all generations") \
	F(umask,        INT,  REQUIRED, "of the user who has started muster, which itself has a stricter one") \
	F(shown,        FLAG, REQUIRED, "whether the agent sends the task's output")

/* The field of each message that can also be a row of node_progress (base/rank_rows.h). */
#define MSG_REPORT_FIELDS(F) \
	F(number, COUNT, REQUIRED, "higher than in each earlier message of this type by this agent: the two ways are not equally fast")

#define MSG_HEALTH_FIELDS(F) \
	MSG_REPORT_FIELDS(F) \
	F(step,      INT64,  REQUIRED, "the step the trainer was in at the end of the window") \
	F(clock,     NUMBER, REQUIRED, "MHz of its cores, a mean; 0: unknown") \
	F(gpu_clock, NUMBER, REQUIRED, "MHz of its GPU, a mean; 0: unknown") \
	F(findings,  JSON,   REQUIRED, "a list of struct msg_finding")

#define MSG_LINKS_FIELDS(F) \
	MSG_REPORT_FIELDS(F) \
	F(links, JSON, REQUIRED, "a list of struct msg_link: the busiest ones")

#define MSG_STOP_FIELDS(F) \
	F(reason,     TEXT, REQUIRED, "why") \
	F(checkpoint, FLAG, REQUIRED, "whether to write a checkpoint first") \
	F(at_step,    COUNT, OPTIONAL, "for programs: the step after which every rank stops") \
	F(reach_s,    NUMBER, OPTIONAL, "for programs: seconds in which every rank should have finished it")

#define MSG_TASK_FIELDS(F) \
	MSG_PROCESS_FIELDS(F)

#define MSG_TASK_FAILED_FIELDS(F)

#define MSG_OUTPUT_FIELDS(F) \
	F(lines, JSON, REQUIRED, "a list of texts") \
	F(left_out, COUNT, REQUIRED, "lines since the last message that were too many to send")

#define MSG_BEGAN_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "finished steps that the task continues from") \
	F(seconds, NUMBER, REQUIRED, "seconds since the task started; the first step is a part of them")

#define MSG_CLIENT_CKPT_FIELDS(F) \
	F(step, COUNT, REQUIRED, "the checkpoint's step") \
	F(path, LINE,  REQUIRED, "what the program calls it")

#define MSG_ABORT_FIELDS(F) \
	F(reason, TEXT, REQUIRED, "why")

#define MSG_REGROUP_FIELDS(F) \
	F(reason, TEXT, REQUIRED, "why")

#define MSG_IDLE_FIELDS(F)

#define MSG_ENDPOINTS_FIELDS(F) \
	F(values, JSON, REQUIRED, "an object: a text for each key") \
	F(wants,  JSON, REQUIRED, "a list of the ranks whose endpoints the agent needs")

#define MSG_WORLD_ENDPOINTS_FIELDS(F) \
	F(first,  INT,  REQUIRED, "how many ranks of the agent's list came before these") \
	F(values, JSON, REQUIRED, "a list: the member values of the message endpoints of each of the next ranks")

#define MSG_DUMP_FIELDS(F)

#define MSG_DUMPED_FIELDS(F) \
	F(error, LINE, OPTIONAL, "why the flight recorder could not be written")

#define MSG_SERIES_FIELDS(F) \
	F(step, COUNT, REQUIRED, "all metrics and evaluations up to this step have been sent")

/* A checkpoint of the step may be committed only after this message: a run must not resume from a
 * step that its series lacks. Lines that were lost to a full disk do not delay a checkpoint. */
#define MSG_RECORDED_FIELDS(F) \
	F(step, COUNT, REQUIRED, "the run folder holds all metrics and evaluations up to this step")

/* A rank that has saved for a number never does so again for this one or a lower one. */
#define MSG_SAVE_FIELDS(F) \
	F(number, INT, REQUIRED, "the number of the request, from 1")

#define MSG_SAVE_FAILED_FIELDS(F) \
	F(step, COUNT, REQUIRED, "the checkpoint's step") \
	F(text, LINE,  REQUIRED, "why")

/* A rank that has begun the steps of a number never records any for this one or a lower one. */
#define MSG_TRACE_FIELDS(F) \
	F(number, INT, REQUIRED, "the number of the request, from 1") \
	F(steps,  INT, REQUIRED, "how many, at most TRACE_STEPS_MOST")

#define MSG_TRACED_FIELDS(F) \
	F(number, INT,   REQUIRED, "the number of the request") \
	F(first,  COUNT, REQUIRED, "the first step that the file has, from 1; 0: none") \
	F(last,   COUNT, REQUIRED, "the last one") \
	F(error,  LINE,  OPTIONAL, "why there is no file")

#define MSG_COLLECT_FIELDS(F) \
	F(rank, INT,  REQUIRED, "the agent's own rank, or that of an agent of its node that does not run any more") \
	F(node, TEXT, REQUIRED, "the node's name in the name of the log")

#define MSG_COLLECTED_FIELDS(F) \
	F(rank,  INT,  REQUIRED, "as in collect") \
	F(node,  TEXT, REQUIRED, "as in collect") \
	F(error, LINE, OPTIONAL, "why the log stays where it is") \
	F(gone,  FLAG, OPTIONAL, "with error: there is no such log on the node")

#define MSG_CONSOLE_HELLO_FIELDS(F) \
	F(version, INT,  REQUIRED, "CONSOLE_VERSION of the console") \
	F(who,     LINE, REQUIRED, "who asks, for the run's events: \"alice on login1\"")

/* `what`: a word of launcher/supervise/console.h. */
#define MSG_CONSOLE_ASK_FIELDS(F) \
	F(what,  TEXT, REQUIRED, "stop, stop-now, checkpoint, trace, logs, state or ranks") \
	F(first, INT,  OPTIONAL, "for ranks: the first rank; absent: 0") \
	F(count, INT,  OPTIONAL, "for ranks: how many; absent: as many as fit. For trace: how many steps") \
	F(ranks, LINE, OPTIONAL, "for logs: a list such as 0,4-7; absent: all") \
	F(node,  LINE, OPTIONAL, "for logs: only ranks on this node")

#define MSG_CONSOLE_ANSWER_FIELDS(F) \
	F(ok,    FLAG,  REQUIRED, "whether it was done, or is being done") \
	F(text,  LINE,  REQUIRED, "the same for people: a clause") \
	F(more,  FLAG,  REQUIRED, "another answer follows, once it is done") \
	F(step,  COUNT, OPTIONAL, "for checkpoint: its step; for trace: the first one that is recorded") \
	F(last,  COUNT, OPTIONAL, "for trace: the last one") \
	F(path,  TEXT,  OPTIONAL, "for checkpoint and trace: the folder") \
	F(state, JSON,  OPTIONAL, "for state: the object of state.json") \
	F(first, INT,   OPTIONAL, "for ranks: the first rank of the list") \
	F(world, INT,   OPTIONAL, "for ranks: how many there are in all") \
	F(ranks, JSON,  OPTIONAL, "for ranks: a list of struct rundir_state_rank")

#define MSG_GUARD_HELLO_FIELDS(F) \
	F(number,  INT,  REQUIRED, "the number of the guard within the run") \
	F(node,    TEXT, REQUIRED, "host name") \
	F(pid,     INT,  REQUIRED, "process id") \
	F(version, INT,  REQUIRED, "MSG_VERSION of the guard")

#define MSG_ALIVE_FIELDS(F)

#define MSG_RELEASE_FIELDS(F)

#define MSG_HELPER_HELLO_FIELDS(F) \
	F(node,    TEXT, REQUIRED, "the node's name in Slurm") \
	F(pid,     INT,  REQUIRED, "process id") \
	F(version, INT,  REQUIRED, "MSG_VERSION of the helper")

#define MSG_HELPER_START_FIELDS(F) \
	F(nspace,  TEXT, REQUIRED, "the PMIx namespace of the generation") \
	F(node,    INT,  REQUIRED, "the number of the helper's node, from 0") \
	F(node_of, JSON, REQUIRED, "a list: the number of the node of each rank") \
	F(threads, JSON, REQUIRED, "a list: the threads of each rank of the node, in the order of the ranks") \
	F(bind,    TEXT, REQUIRED, "the value of [launch] bind") \
	F(agent,   TEXT, REQUIRED, "path of muster-agent") \
	F(run,     TEXT, REQUIRED, "the run folder") \
	F(address, TEXT, REQUIRED, "the agents' supervisor, \"host:port\"") \
	F(secret,  TEXT, REQUIRED, "the agents' secret, 64 hex digits") \
	F(auth,    TEXT, REQUIRED, "what else agents must prove: munge_parse() reads it") \
	F(program, FLAG, REQUIRED, "whether the agents run a program, which is the client of PMIx in their place")

#define MSG_HELPER_PART_FIELDS(F) \
	F(fence, COUNT, REQUIRED, "the number of the fence, from 0") \
	F(part,  INT,   REQUIRED, "the number of the part, from 0") \
	F(parts, INT,   REQUIRED, "how many there are") \
	F(data,  TEXT,  REQUIRED, "its bytes, in base64")

#define MSG_HELPER_NEXT_FIELDS(F) \
	F(fence, COUNT, REQUIRED, "the number of the fence") \
	F(part,  INT,   REQUIRED, "the number of the part that has come")

#define MSG_BAD_STEP_FIELDS(F) \
	F(step,  COUNT,  REQUIRED, "the step") \
	F(what,  TEXT,   REQUIRED, "what is bad: loss or gradient norm") \
	F(value, NUMBER, REQUIRED, "its value") \
	F(usual, NUMBER, REQUIRED, "if the value is finite: the median of the steps before it") \
	F(first, COUNT,  REQUIRED, "position in the order of the data of the first sample to skip") \
	F(count, COUNT,  REQUIRED, "how many samples to skip")

#define MSG_HELPER_EXITED_FIELDS(F) \
	F(rank,   INT, REQUIRED, "its rank") \
	F(status, INT, REQUIRED, "how it ended, as waitpid() sets it")

#define MSG_BURN_IN_ORDER_FIELDS(F) \
	F(number,  COUNT,  REQUIRED, "number of the order; the card and the result have it too") \
	F(seconds, NUMBER, REQUIRED, "what the measurement may take, without the start of a connection") \
	F(peer,    TEXT,   OPTIONAL, "measure the link to this node; absent: measure the node itself") \
	F(rank,    INT,    OPTIONAL, "0 or 1: which end of the link the node is")

#define MSG_BURN_IN_CARD_FIELDS(F) \
	F(number, COUNT, REQUIRED, "number of the order that this end has") \
	F(values, JSON,  REQUIRED, "an object: a text for each key")

#define MSG_BURN_IN_RESULT_FIELDS(F) \
	F(number,  COUNT, REQUIRED, "number of the order") \
	F(figures, JSON,  REQUIRED, "a list of struct msg_burn_in_figure") \
	F(error,   LINE,  OPTIONAL, "what could not be measured, and why")

/* An element of the list `figures` of burn_in_result. */
#define MSG_BURN_IN_FIGURE_FIELDS(F) \
	F(what,   TEXT,   REQUIRED, "a word of base/burn_in_figures.h") \
	F(device, INT,    REQUIRED, "number of the device on the node") \
	F(value,  NUMBER, REQUIRED, "the figure, in the unit of that table") \
	F(own,    NUMBER, OPTIONAL, "the same figure by the calibration of the node")

/* `muster-agent stacks` takes this object as its word, and prints those of MSG_EXAMINED, one per line. */
#define MSG_EXAMINE_FIELDS(F) \
	F(rank,    INT,    REQUIRED, "the rank of the agent to examine") \
	MSG_PROCESS_FIELDS(F) \
	F(seconds, NUMBER, REQUIRED, "the longest that it may take") \
	F(file,    TEXT,   REQUIRED, "path of the report: the stacks of its threads")

#define MSG_EXAMINED_FIELDS(F) \
	F(rank, INT,  REQUIRED, "the rank") \
	F(kind, TEXT, REQUIRED, "a word of agent/stacks/stacks.h, such as stopped, call or computing") \
	F(text, LINE, REQUIRED, "the same for people: a clause") \
	F(last, FLAG, REQUIRED, "no further answer about the rank follows")

/* The member `coords` of welcome. */
#define MSG_COORDS_FIELDS(F) \
	F(tp, INT, REQUIRED, "tensor-parallel coordinate") \
	F(cp, INT, REQUIRED, "context-parallel coordinate") \
	F(dp, INT, REQUIRED, "data-parallel coordinate") \
	F(pp, INT, REQUIRED, "pipeline stage")

/* An element of the list `predecessors` of welcome. */
#define MSG_PREDECESSOR_FIELDS(F) \
	F(generation, COUNT, REQUIRED, "the launch that it belongs to") \
	MSG_PROCESS_FIELDS(F)

/* An element of the list `skips` of welcome. */
#define MSG_SKIP_FIELDS(F) \
	F(first,  COUNT, REQUIRED, "position in the order of the data of the first sample that is skipped") \
	F(count,  COUNT, REQUIRED, "how many samples are skipped") \
	F(reason, LINE,  REQUIRED, "why") \
	F(generation, COUNT, REQUIRED, "the generation that met the bad step") \
	F(resume, COUNT, OPTIONAL, "checkpoints of later steps by this generation or an earlier one are not used")

/* An element of the list `findings` of health. */
#define MSG_FINDING_FIELDS(F) \
	F(kind,   TEXT,   REQUIRED, "its word in the table of kinds (agent/health/kinds.c)") \
	F(share,  NUMBER, REQUIRED, "the part of the window that it explains, 0 to 1") \
	F(alarm,  FLAG,   REQUIRED, "whether it is a defect, even if the rank is not slow") \
	F(node,   FLAG,   REQUIRED, "whether it is about the whole node") \
	F(object, LINE,   REQUIRED, "the device; \"\": none") \
	F(text,   LINE,   REQUIRED, "the same for people")

/* An element of the list `links` of links. */
#define MSG_LINK_FIELDS(F) \
	F(group,  TEXT,   REQUIRED, "the group of ranks, such as \"dp\"") \
	F(peer,   INT,    REQUIRED, "the rank to which the bytes went") \
	F(share,  NUMBER, REQUIRED, "the part of the window in which bytes were on their way, and no full buffer at either end was the reason") \
	F(rate,   NUMBER, REQUIRED, "bytes per second of that time") \
	F(resent, NUMBER, REQUIRED, "the part of the segments that were sent again")

enum msg_type {
	MSG_NONE,
#define MSG_ENUM(type, name, FIELDS, sender, doc) type,
	MSG_TYPES(MSG_ENUM)
#undef MSG_ENUM
	MSG_COUNT
};

#define MSG_STRUCT(type, name, FIELDS, sender, doc) struct msg_##name { FIELDS(FIELDS_MEMBER) };
MSG_TYPES(MSG_STRUCT)
MSG_STRUCT(, coords, MSG_COORDS_FIELDS, , )
MSG_STRUCT(, program, MSG_PROGRAM_FIELDS, , )
MSG_STRUCT(, predecessor, MSG_PREDECESSOR_FIELDS, , )
MSG_STRUCT(, blame, MSG_BLAME_FIELDS, , )
MSG_STRUCT(, skip, MSG_SKIP_FIELDS, , )
MSG_STRUCT(, burn_in_figure, MSG_BURN_IN_FIGURE_FIELDS, , )
MSG_STRUCT(, finding, MSG_FINDING_FIELDS, , )
MSG_STRUCT(, link, MSG_LINK_FIELDS, , )
#undef MSG_STRUCT

/*
 * json_t *msg_<name>_json(const struct msg_<name> *m)
 *     The message's body, a new reference. NULL if there is no memory or a text is not UTF-8.
 * int msg_<name>_read(const json_t *body, struct msg_<name> *m, struct err *e)
 *     Fills *m, which borrows its texts and objects from `body`. ERR_PROTO names the field that is
 *     missing or invalid; the valid fields are set nevertheless.
 */
#define MSG_FUNCTIONS(type, name, FIELDS, sender, doc) \
	json_t *msg_##name##_json(const struct msg_##name *m); \
	int msg_##name##_read(const json_t *body, struct msg_##name *m, struct err *e);
MSG_TYPES(MSG_FUNCTIONS)
MSG_FUNCTIONS(, coords, MSG_COORDS_FIELDS, , )
MSG_FUNCTIONS(, program, MSG_PROGRAM_FIELDS, , )
MSG_FUNCTIONS(, predecessor, MSG_PREDECESSOR_FIELDS, , )
MSG_FUNCTIONS(, blame, MSG_BLAME_FIELDS, , )
MSG_FUNCTIONS(, skip, MSG_SKIP_FIELDS, , )
MSG_FUNCTIONS(, burn_in_figure, MSG_BURN_IN_FIGURE_FIELDS, , )
MSG_FUNCTIONS(, finding, MSG_FINDING_FIELDS, , )
MSG_FUNCTIONS(, link, MSG_LINK_FIELDS, , )
#undef MSG_FUNCTIONS

/* clang-format on */

/* The message's name, such as "hello"; "unknown" for a type that does not exist. */
const char *msg_word(enum msg_type type);

#endif
