/*
 * events — the lines of events.jsonl, which record what happened to a run.
 *
 * A line is an object {"event": name, "time": seconds since 1970, "mono": seconds of the monotonic
 * clock, "generation": number, …}. The generation is 0 before the first one of a `muster run`. Both
 * times have microseconds. The remaining keys are the fields of the event's table (base/fields.h).
 * For the event hello, whose table is hello, they generate struct rundir_hello and
 * rundir_event_hello().
 *
 * To add an event:
 *   1. add its row to RUNDIR_EVENTS and, unless an existing table fits, a table and its row in
 *      RUNDIR_TABLES;
 *   2. call rundir_event_<id>() where it happens (launcher/supervise/).
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_EVENTS_H
#define MUSTER_LAUNCHER_RUNDIR_EVENTS_H

#include "base/fields.h"
#include "launcher/rundir/rundir.h"

/* clang-format off */

/* id, name, table, doc */
#define RUNDIR_EVENTS(X) \
	X(plan,             "plan",             plan,        "the layout that the generation runs") \
	X(generation_start, "generation-start", start,       "a generation starts") \
	X(start_again,      "start-again",      start_again, "a helper process died in the first start; the same generation starts again") \
	X(started,          "started",          none,        "every process of the generation runs") \
	X(pmix,             "pmix",             pmix,        "muster's own servers serve PMIx to the generation or to the next one, or the helper of a node is lost") \
	X(hello,            "hello",            hello,       "agents of a node have connected") \
	X(refused,          "refused",          why,         "a connection was closed: a stranger, a stale or second agent, or an invalid frame") \
	X(accept_failed,    "accept-failed",    why,         "connections cannot be accepted; the first time in a generation") \
	X(connected,        "connected",        none,        "every rank has connected") \
	X(ready,            "ready",            ready,       "every rank is ready to continue from this step") \
	X(first_step,       "first-step",       first_step,  "the generation has finished its first step") \
	X(ckpt,             "ckpt",             ckpt,        "a checkpoint was committed") \
	X(ckpt_local,       "ckpt-local",       ckpt,        "a checkpoint was committed in the folders of the nodes (checkpoint.local)") \
	X(ckpt_asked,       "ckpt-asked",       why,         "somebody asked for a checkpoint (muster checkpoint)") \
	X(trace_asked,      "trace-asked",      why,         "somebody asked for a trace of the next steps (muster trace --next)") \
	X(uploaded,         "uploaded",         upload,      "a checkpoint was copied to checkpoint.remote") \
	X(upload_failed,    "upload-failed",    why,         "a checkpoint could not be copied; the first time since one was") \
	X(upload_left,      "upload-left",      upload_left, "the run ends before all checkpoints are copied") \
	X(eval,             "eval",             eval,        "an evaluation has ended") \
	X(log,              "log",              log,         "a rank logged a warning or an error") \
	X(rank_lost,        "rank-lost",        rank_lost,   "the loss of this rank ends the generation") \
	X(fault,            "fault",            fault,       "what the loss means, once no process of the generation is left") \
	X(verdict,          "verdict",          verdict,     "what the flight recorders show, as muster trace --json prints it") \
	X(no_verdict,       "verdict",          no_verdict,  "the flight recorders could not be read") \
	X(hang,             "hang",             hang,        "the rank that hung first, and in what, once the processes were examined") \
	X(exit,             "exit",             exit,        "the process of a rank that was lost, or that ended badly") \
	X(survey,           "survey",           survey,      "the state of the nodes after a loss") \
	X(node_check,       "node-check",       node_check,  "a node that is back was checked before the run grows onto it, or a node failed the check before the first generation") \
	X(nodes_checked,    "nodes-checked",    nodes_checked, "all nodes were checked before the first generation; node-check names those that failed") \
	X(burn_in,          "burn-in",          burn_in,     "the nodes were measured before the first generation; preflight.json has every figure, and node-check names the nodes that failed") \
	X(decision,         "decision",         decision,    "where the next generation runs, if not on the same plan") \
	X(regrouped,        "regrouped",        regrouped,   "after a loss: the other agents have left the generation and wait for the next one") \
	X(restart,          "restart",          restart,     "another generation follows") \
	X(guard,            "guard",            guard,       "a guard has connected, is lost, or cannot start") \
	X(stop,             "stop",             stop,        "the run is asked to stop") \
	X(stop_cause,       "stop-cause",       stop_cause,  "why the run is asked to stop, as Slurm says") \
	X(requeued,         "requeued",         none,        "the job begins again in the queue after this stop") \
	X(slow_rank,        "slow-rank",        slow_rank,   "a rank is slower than its peers, is still slow for another reason, or is not slow any more") \
	X(slow_link,        "slow-link",        slow_link,   "a link between two ranks is slower than the others, or is not any more") \
	X(rank_paused,      "rank-paused",      rank_paused, "nothing was heard of a rank for some seconds, and it goes on") \
	X(numbers_traced,      "numbers-traced",      numbers_traced, "wrong numbers, which end the generation, were traced to this rank") \
	X(health_alarm,     "health-alarm",     health_alarm, "a device of a node has a defect, once per device and kind") \
	X(slow_ckpt,        "slow-ckpt",        slow_ckpt,   "checkpoints take much longer than before or hold up training, or do not any more") \
	X(slow_node,        "slow-node",        slow_node,   "what the policy for slow ranks does about the node of one") \
	X(warning,          "warning",          warning,     "a warning begins, or ends") \
	X(rollback,         "rollback",         rolled_back, "the numbers of a step are bad, and the next generation skips its samples") \
	X(node_suspected,   "node-suspected",   node_suspected, "something speaks against a node; the list of suspect nodes gets this line") \
	X(chain,            "chain",            chain,       "a job was queued to continue the run, or those that wait are cancelled") \
	X(contract,         "contract",         contract,    "predicted against measured seconds and memory, at the end") \
	X(finished,         "finished",         step,        "every rank has done its work") \
	X(done,             "done",             end,         "last event of `muster run`: all steps are done") \
	X(stopped,          "stopped",          end,         "last event of `muster run`: it stopped on purpose") \
	X(failed,           "failed",           end,         "last event of `muster run`: the job failed") \
	X(gave_up,          "gave-up",          end,         "last event of `muster run`: no restart is left")

#define RUNDIR_NONE_FIELDS(F)

#define RUNDIR_PLAN_FIELDS(F) \
	F(world,  INT,    REQUIRED, "number of ranks") \
	F(tp,     INT,    REQUIRED, "tensor-parallel degree") \
	F(cp,     INT,    REQUIRED, "context-parallel degree") \
	F(ep,     INT,    REQUIRED, "expert-parallel degree") \
	F(dp,     INT,    REQUIRED, "data-parallel degree") \
	F(pp,     INT,    REQUIRED, "pipeline stages") \
	F(step_s, NUMBER, OPTIONAL, "predicted seconds of a step; absent: the job runs a program") \
	F(least_s, NUMBER, OPTIONAL, "a step likely takes at least these seconds; absent: the error of predictions is unknown, as on processors") \
	F(most_s,  NUMBER, OPTIONAL, "a step likely takes at most these seconds")

#define RUNDIR_START_FIELDS(F) \
	F(resume,   LINE,  REQUIRED, "\"none\", a checkpoint's folder, or \"auto\": the last valid one") \
	F(restarts, COUNT, REQUIRED, "restarts since `muster run` started") \
	F(auth,     TEXT,  REQUIRED, "what agents must prove")

#define RUNDIR_START_AGAIN_FIELDS(F) \
	F(text, LINE, REQUIRED, "how the start failed")

#define RUNDIR_PMIX_FIELDS(F) \
	F(what, TEXT, REQUIRED, "own: the generation has muster's servers; refused: the next one has; helper-lost: a helper has ended, or cannot start its agents") \
	F(node, TEXT, OPTIONAL, "the helper's node") \
	F(text, LINE, REQUIRED, "why")

#define RUNDIR_HELLO_FIELDS(F) \
	F(node,      TEXT,  REQUIRED, "host name") \
	F(boot,      TEXT,  REQUIRED, "random id of the boot; \"\": unknown") \
	F(pid_space, COUNT, REQUIRED, "inode of the PID namespace of these agents; 0: unknown") \
	F(kept,      FLAG,  OPTIONAL, "whether the agents continue from the last generation") \
	F(agents,    JSON,  REQUIRED, "a list: rank, pid and start of each agent")

/* An element of the list `agents` of hello. */
#define RUNDIR_AGENT_FIELDS(F) \
	F(rank,  INT,   REQUIRED, "the rank") \
	F(pid,   INT,   REQUIRED, "process id") \
	F(start, COUNT, REQUIRED, "clock ticks from the boot to the start of the process; 0: unknown")

#define RUNDIR_WHY_FIELDS(F) \
	F(why, LINE, REQUIRED, "the cause")

#define RUNDIR_REGROUPED_FIELDS(F) \
	F(kept,         INT,    REQUIRED, "agents that continue") \
	F(since_lost_s, NUMBER, REQUIRED, "seconds since the loss")

#define RUNDIR_STEP_FIELDS(F) \
	F(step, INT64, REQUIRED, "finished steps")

#define RUNDIR_READY_FIELDS(F) \
	F(step, INT64, REQUIRED, "finished steps") \
	F(from, TEXT,  OPTIONAL, "where the state was loaded from: \"memory\", or a checkpoint's path; absent: it is the initial one")

#define RUNDIR_FIRST_STEP_FIELDS(F) \
	F(step,          COUNT,  REQUIRED, "finished steps") \
	F(since_start_s, NUMBER, REQUIRED, "seconds since the generation started") \
	F(loss,          NUMBER, OPTIONAL, "training loss, if it is finite") \
	F(since_lost_s,  NUMBER, OPTIONAL, "after a loss: seconds since then") \
	F(since_open_s,  NUMBER, OPTIONAL, "in the first generation: seconds since muster began")

#define RUNDIR_CKPT_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "the checkpoint's step") \
	F(path,    LINE,   REQUIRED, "its folder") \
	F(bytes,   COUNT,  REQUIRED, "its size") \
	F(seconds, NUMBER, REQUIRED, "from the snapshot to the commit") \
	F(stall_s, NUMBER, REQUIRED, "seconds training was held up")

#define RUNDIR_UPLOAD_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "the checkpoint's step") \
	F(path,    LINE,   REQUIRED, "where the copy is") \
	F(bytes,   COUNT,  REQUIRED, "its size") \
	F(sent,    COUNT,  REQUIRED, "bytes that were not there already") \
	F(seconds, NUMBER, REQUIRED, "how long it took") \
	F(left,    INT,    REQUIRED, "checkpoints that are still to be copied")

#define RUNDIR_UPLOAD_LEFT_FIELDS(F) \
	F(left, INT, REQUIRED, "checkpoints that are still to be copied; -1: unknown")

#define RUNDIR_EVAL_FIELDS(F) \
	F(step, COUNT,  REQUIRED, "finished steps") \
	F(loss, NUMBER, REQUIRED, "mean loss over the evaluation's samples")

#define RUNDIR_LOG_FIELDS(F) \
	F(rank,  INT,  REQUIRED, "the rank") \
	F(node,  TEXT, REQUIRED, "its node") \
	F(level, TEXT, REQUIRED, "\"warn\" or \"error\"") \
	F(text,  LINE, REQUIRED, "the line")

/* Where a rank was; only `rank` if the event is about no rank in particular. */
#define RUNDIR_RANK_FIELDS(F) \
	F(rank,  INT,   NULLABLE, "the rank; null: no rank in particular") \
	F(node,  TEXT,  OPTIONAL, "its node") \
	F(step,  INT64, OPTIONAL, "finished steps; -1: none is known") \
	F(phase, LINE,  OPTIONAL, "what the trainer did")

#define RUNDIR_STATUS_FIELDS(F) \
	F(signal, INT, OPTIONAL, "the signal that ended the process") \
	F(status, INT, OPTIONAL, "the exit status of the process, if no signal ended it")

#define RUNDIR_RANK_LOST_FIELDS(F) \
	RUNDIR_RANK_FIELDS(F) \
	F(how,  TEXT, REQUIRED, "closed, exited, failed, protocol, silent, hung or start") \
	F(code, TEXT, REQUIRED, "err_word() of the cause") \
	F(text, LINE, REQUIRED, "the cause") \
	F(fault, TEXT, REQUIRED, "the fault that explains it, by what is known so far (launcher/supervise/faults.h)") \
	F(owner, TEXT, REQUIRED, "who can mend it: job, node, network, service or unknown") \
	RUNDIR_STATUS_FIELDS(F)

#define RUNDIR_FAULT_FIELDS(F) \
	F(rank,   INT,  NULLABLE, "the rank at fault; null: no rank in particular") \
	F(node,   TEXT, OPTIONAL, "its node") \
	F(fault,  TEXT, REQUIRED, "the fault's name (launcher/supervise/faults.h)") \
	F(owner,  TEXT, REQUIRED, "who can mend it: job, node, network, service or unknown") \
	F(retry,  TEXT, REQUIRED, "whether another start helps: never, now or wait") \
	F(text,   LINE, REQUIRED, "what was seen") \
	F(remedy, LINE, REQUIRED, "what a person can do; \"\": nothing") \
	RUNDIR_STATUS_FIELDS(F)

#define RUNDIR_VERDICT_FIELDS(F) \
	F(finding, TEXT,  REQUIRED, "the kind of finding; \"none\": nothing was found") \
	F(text,    LINE,  REQUIRED, "the finding, for people") \
	F(group,   TEXT,  NULLABLE, "the communicator") \
	F(op,      TEXT,  NULLABLE, "the operation") \
	F(number,  COUNT, REQUIRED, "the operation's number in its communicator") \
	F(ranks,   JSON,  REQUIRED, "the ranks that the finding blames") \
	F(world,   INT,   REQUIRED, "number of ranks") \
	F(missing, JSON,  REQUIRED, "the ranks whose flight recorder is missing")

#define RUNDIR_NO_VERDICT_FIELDS(F) \
	F(error, LINE, REQUIRED, "the cause")

#define RUNDIR_HANG_FIELDS(F) \
	F(rank,       INT,    REQUIRED, "the rank that hung first") \
	F(node,       TEXT,   REQUIRED, "its node") \
	F(step,       INT64,  REQUIRED, "finished steps; -1: none is known") \
	F(phase,      LINE,   REQUIRED, "what the trainer did") \
	F(kind,       TEXT,   REQUIRED, "stopped, kernel, call, computing, waiting, gone, unknown (agent/stacks/stacks.h), or collectives: ranks wait for each other in different ones") \
	F(text,       LINE,   REQUIRED, "the same for people, with what the flight recorders show") \
	F(still_s,    NUMBER, REQUIRED, "seconds from the rank's last progress until the hang was found") \
	F(examined_s, NUMBER, REQUIRED, "seconds that the examination took") \
	F(file,       LINE,   OPTIONAL, "the stacks of its threads")

#define RUNDIR_EXIT_FIELDS(F) \
	RUNDIR_RANK_FIELDS(F) \
	RUNDIR_STATUS_FIELDS(F)

#define RUNDIR_RESTART_FIELDS(F) \
	F(delay_s, NUMBER, REQUIRED, "seconds until the next generation starts") \
	F(futile,  COUNT,  REQUIRED, "restarts in a row that made no progress")

#define RUNDIR_SURVEY_FIELDS(F) \
	F(answered, FLAG, REQUIRED, "whether the manager of the nodes has answered") \
	F(why,      LINE, REQUIRED, "if it has not: the cause") \
	F(lost,     INT,  REQUIRED, "nodes that cannot be used as a whole") \
	F(text,     LINE, REQUIRED, "these nodes and why")

#define RUNDIR_NODE_CHECK_FIELDS(F) \
	F(node,   TEXT, REQUIRED, "the node") \
	F(passed, FLAG, REQUIRED, "whether the run may use it") \
	F(text,   LINE, REQUIRED, "if not: what is wrong with it")

#define RUNDIR_NODES_CHECKED_FIELDS(F) \
	F(passed,  INT,    REQUIRED, "nodes that passed") \
	F(failed,  INT,    REQUIRED, "nodes that failed, or did not answer; both are 0 if no node answered") \
	F(seconds, NUMBER, REQUIRED, "what the check took")

#define RUNDIR_BURN_IN_FIELDS(F) \
	F(nodes,    INT,    REQUIRED, "nodes that were measured") \
	F(failed,   INT,    REQUIRED, "nodes that failed") \
	F(seconds,  NUMBER, REQUIRED, "what the measurements took") \
	F(repeated, FLAG,   REQUIRED, "whether they were made twice, because a figure was bad") \
	F(medians,  JSON,   REQUIRED, "the median over all nodes of each figure, by its word (base/burn_in_figures.h)") \
	F(notes,    JSON,   REQUIRED, "a list of texts: what is slow without being a node's fault")

#define RUNDIR_DECISION_FIELDS(F) \
	F(how,     TEXT, REQUIRED, "spare, dp, replan, requeue, wait, give up or grow") \
	F(text,    LINE, REQUIRED, "what is done, for people") \
	F(options, JSON, REQUIRED, "what was examined: a list of {how, possible, step_s, text}")

#define RUNDIR_GUARD_FIELDS(F) \
	F(node, TEXT, REQUIRED, "the node of the guard; \"\": none in particular") \
	F(text, LINE, REQUIRED, "what happened to it")

#define RUNDIR_STOP_FIELDS(F) \
	F(reason,     LINE, REQUIRED, "who or what asked for it") \
	F(checkpoint, FLAG, REQUIRED, "whether muster writes a checkpoint first; a program decides by itself")

#define RUNDIR_STOP_CAUSE_FIELDS(F) \
	F(answered, FLAG, REQUIRED, "whether Slurm has answered") \
	F(cause,    TEXT, REQUIRED, "person (or unknown), time-limit, preempted, cancelled or requeued") \
	F(left_s,   NUMBER, OPTIONAL, "seconds until Slurm ends the job") \
	F(why,      LINE, REQUIRED, "why Slurm has not answered; empty if it has")

#define RUNDIR_SLOW_RANK_FIELDS(F) \
	F(rank,    INT,    REQUIRED, "the rank") \
	F(node,    TEXT,   REQUIRED, "its node") \
	F(slow,    FLAG,   REQUIRED, "false: it is as fast as its peers again") \
	F(factor,  NUMBER, REQUIRED, "its own seconds per step, over those of its peers") \
	F(since_s, NUMBER, REQUIRED, "seconds since it became slow") \
	F(text,    LINE,   REQUIRED, "the same for people, with the likely reason")

#define RUNDIR_SLOW_LINK_FIELDS(F) \
	F(rank,      INT,    REQUIRED, "the rank that sends") \
	F(node,      TEXT,   REQUIRED, "its node") \
	F(peer,      INT,    REQUIRED, "the rank that receives") \
	F(peer_node, TEXT,   REQUIRED, "its node") \
	F(group,     TEXT,   REQUIRED, "the group of ranks in which they exchange, such as dp") \
	F(slow,      FLAG,   REQUIRED, "false: it is as fast as the others again") \
	F(rate,      NUMBER, REQUIRED, "bytes per second while it was busy") \
	F(usual,     NUMBER, REQUIRED, "the median of the other links of the group") \
	F(share,     NUMBER, REQUIRED, "the part of the window in which it was busy") \
	F(resent,    NUMBER, REQUIRED, "the part of the segments that were sent again") \
	F(text,      LINE,   REQUIRED, "the same for people")

#define RUNDIR_RANK_PAUSED_FIELDS(F) \
	F(rank,    INT,    REQUIRED, "the rank") \
	F(node,    TEXT,   REQUIRED, "its node") \
	F(seconds, NUMBER, REQUIRED, "of silence") \
	F(text,    LINE,   REQUIRED, "the same for people")

#define RUNDIR_NUMBERS_TRACED_FIELDS(F) \
	F(rank,    INT,   REQUIRED, "the rank that had them first") \
	F(node,    TEXT,  REQUIRED, "its node") \
	F(step,    COUNT, REQUIRED, "the step, from 1") \
	F(kind,    LINE,  REQUIRED, "what was wrong: weights, optimizer-state, activations or gradient") \
	F(tensor,  LINE,  REQUIRED, "the tensor; \"\": none in particular") \
	F(suspect, FLAG,  REQUIRED, "whether it is the sign of a fault of hardware") \
	F(text,    LINE,  REQUIRED, "what was found")

#define RUNDIR_HEALTH_ALARM_FIELDS(F) \
	F(rank,   INT,  REQUIRED, "the rank that saw it") \
	F(node,   TEXT, REQUIRED, "its node") \
	F(kind,   TEXT, REQUIRED, "the kind of the finding (agent/health/kinds.c)") \
	F(object, LINE, REQUIRED, "the device; \"\": the node") \
	F(text,   LINE, REQUIRED, "the same for people")

#define RUNDIR_SLOW_CKPT_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "the checkpoint's step") \
	F(slow,    FLAG,   REQUIRED, "false: checkpoints are not slow any more") \
	F(seconds, NUMBER, REQUIRED, "from the snapshot to the commit") \
	F(usual_s, NUMBER, REQUIRED, "the median of the earlier ones; 0: unknown, or it does not matter, because training waits too long") \
	F(stall_s, NUMBER, REQUIRED, "seconds training was held up") \
	F(text,    LINE,   REQUIRED, "the same for people, with what the disks of the nodes show")

#define RUNDIR_SLOW_NODE_FIELDS(F) \
	F(node,     TEXT, REQUIRED, "the node") \
	F(excluded, FLAG, REQUIRED, "whether the run goes on without it") \
	F(text,     LINE, REQUIRED, "what is done, and why")

/* A line of health.jsonl: a window of a rank. */
#define RUNDIR_HEALTH_FIELDS(F) \
	F(rank,      INT,    REQUIRED, "the rank") \
	F(node,      TEXT,   REQUIRED, "its node") \
	F(step,      INT64,  REQUIRED, "the step at the end of the window") \
	F(steps,     COUNT,  REQUIRED, "steps of the window; 0: the ranks were not compared") \
	F(slow,      FLAG,   REQUIRED, "whether the rank was slow") \
	F(pace_s,    NUMBER, REQUIRED, "its own seconds per step") \
	F(peers_s,   NUMBER, REQUIRED, "those of its peers") \
	F(clock,     NUMBER, REQUIRED, "MHz of its cores; 0: unknown") \
	F(gpu_clock, NUMBER, REQUIRED, "MHz of its GPU; 0: unknown") \
	F(findings,  JSON,   REQUIRED, "a list of struct msg_finding (base/messages.h), of its last window in which they changed")

#define RUNDIR_WARNING_FIELDS(F) \
	F(id,     TEXT,  REQUIRED, "which one: an id of WARNING_RULES (launcher/supervise/warnings.h)") \
	F(holds,  FLAG,  REQUIRED, "whether it begins; otherwise it ends") \
	F(step,   INT64, REQUIRED, "last finished step; -1: none") \
	F(text,   LINE,  REQUIRED, "what was seen") \
	F(remedy, LINE,  REQUIRED, "what a person can do")

#define RUNDIR_ROLLED_BACK_FIELDS(F) \
	F(step,      COUNT,  REQUIRED, "the bad step, which updated nothing") \
	F(what,      TEXT,   REQUIRED, "loss or gradient norm") \
	F(value,     NUMBER, REQUIRED, "its value; null: not finite") \
	F(usual,     NUMBER, REQUIRED, "of a spike: the median of the steps before it; otherwise null") \
	F(first,     COUNT,  REQUIRED, "position in the order of the data of the first sample that is skipped") \
	F(count,     COUNT,  REQUIRED, "how many samples are skipped") \
	F(rollbacks, COUNT,  REQUIRED, "rollbacks of the run so far") \
	F(text,      LINE,   REQUIRED, "what is bad, for people")

#define RUNDIR_NODE_SUSPECTED_FIELDS(F) \
	F(node,     TEXT, REQUIRED, "the node") \
	F(kind,     TEXT, REQUIRED, "a word of SUSPECT_KINDS (launcher/suspects/suspects.h)") \
	F(evidence, LINE, REQUIRED, "what was seen") \
	F(did,      LINE, REQUIRED, "what the run did about it; \"\": nothing")

#define RUNDIR_CHAIN_FIELDS(F) \
	F(job,  TEXT, OPTIONAL, "the job that was queued, or the first one of those that are cancelled") \
	F(text, LINE, REQUIRED, "what was done and why")

#define RUNDIR_CONTRACT_FIELDS(F) \
	F(steps,     COUNT, REQUIRED, "measured steps") \
	F(predicted, JSON,  REQUIRED, "seconds: step_s and each of its parts (base/step_parts.h)") \
	F(measured,  JSON,  REQUIRED, "the same, as means over the measured steps") \
	F(least_s,   NUMBER, OPTIONAL, "seconds: a step was likely to take at least that; absent: the error of predictions is unknown") \
	F(most_s,    NUMBER, OPTIONAL, "seconds: a step was likely to take at most that") \
	F(memory,    JSON,  OPTIONAL, "{rank, predicted_bytes, measured_bytes} of the rank where they differ most")

#define RUNDIR_END_FIELDS(F) \
	F(reason,   LINE,  REQUIRED, "why it ended") \
	F(status,   INT,   REQUIRED, "exit status of muster") \
	F(step,     INT64, REQUIRED, "last finished step; -1: none") \
	F(restarts, COUNT, REQUIRED, "restarts since `muster run` started")

/* table, its fields */
#define RUNDIR_TABLES(X) \
	X(none,        RUNDIR_NONE_FIELDS) \
	X(plan,        RUNDIR_PLAN_FIELDS) \
	X(start,       RUNDIR_START_FIELDS) \
	X(start_again, RUNDIR_START_AGAIN_FIELDS) \
	X(pmix,        RUNDIR_PMIX_FIELDS) \
	X(hello,       RUNDIR_HELLO_FIELDS) \
	X(agent,       RUNDIR_AGENT_FIELDS) \
	X(why,         RUNDIR_WHY_FIELDS) \
	X(regrouped,   RUNDIR_REGROUPED_FIELDS) \
	X(step,        RUNDIR_STEP_FIELDS) \
	X(ready,       RUNDIR_READY_FIELDS) \
	X(first_step,  RUNDIR_FIRST_STEP_FIELDS) \
	X(ckpt,        RUNDIR_CKPT_FIELDS) \
	X(upload,      RUNDIR_UPLOAD_FIELDS) \
	X(upload_left, RUNDIR_UPLOAD_LEFT_FIELDS) \
	X(eval,        RUNDIR_EVAL_FIELDS) \
	X(log,         RUNDIR_LOG_FIELDS) \
	X(rank_lost,   RUNDIR_RANK_LOST_FIELDS) \
	X(fault,       RUNDIR_FAULT_FIELDS) \
	X(verdict,     RUNDIR_VERDICT_FIELDS) \
	X(no_verdict,  RUNDIR_NO_VERDICT_FIELDS) \
	X(hang,        RUNDIR_HANG_FIELDS) \
	X(exit,        RUNDIR_EXIT_FIELDS) \
	X(survey,      RUNDIR_SURVEY_FIELDS) \
	X(node_check,  RUNDIR_NODE_CHECK_FIELDS) \
	X(nodes_checked, RUNDIR_NODES_CHECKED_FIELDS) \
	X(burn_in,     RUNDIR_BURN_IN_FIELDS) \
	X(decision,    RUNDIR_DECISION_FIELDS) \
	X(restart,     RUNDIR_RESTART_FIELDS) \
	X(guard,       RUNDIR_GUARD_FIELDS) \
	X(stop,        RUNDIR_STOP_FIELDS) \
	X(stop_cause,  RUNDIR_STOP_CAUSE_FIELDS) \
	X(slow_rank,   RUNDIR_SLOW_RANK_FIELDS) \
	X(slow_link,   RUNDIR_SLOW_LINK_FIELDS) \
	X(rank_paused, RUNDIR_RANK_PAUSED_FIELDS) \
	X(numbers_traced, RUNDIR_NUMBERS_TRACED_FIELDS) \
	X(health_alarm, RUNDIR_HEALTH_ALARM_FIELDS) \
	X(slow_ckpt,   RUNDIR_SLOW_CKPT_FIELDS) \
	X(slow_node,   RUNDIR_SLOW_NODE_FIELDS) \
	X(health,      RUNDIR_HEALTH_FIELDS) \
	X(warning,     RUNDIR_WARNING_FIELDS) \
	X(rolled_back, RUNDIR_ROLLED_BACK_FIELDS) \
	X(node_suspected, RUNDIR_NODE_SUSPECTED_FIELDS) \
	X(chain,       RUNDIR_CHAIN_FIELDS) \
	X(contract,    RUNDIR_CONTRACT_FIELDS) \
	X(end,         RUNDIR_END_FIELDS)

#define RUNDIR_STRUCT(table, FIELDS) struct rundir_##table { FIELDS(FIELDS_MEMBER) };
RUNDIR_TABLES(RUNDIR_STRUCT)
#undef RUNDIR_STRUCT

/*
 * void rundir_event_<id>(struct rundir *r, uint32_t generation,
 *                        const struct rundir_<table> *fields)
 *     Appends the event's line to events.jsonl. `fields` may be NULL if the table is `none`. A line
 *     that cannot be written (a full disk) is lost, and rundir_lost() counts it: the run itself
 *     continues.
 */
#define RUNDIR_FUNCTION(id, name, table, doc) \
	void rundir_event_##id(struct rundir *r, uint32_t generation, const struct rundir_##table *fields);
RUNDIR_EVENTS(RUNDIR_FUNCTION)
#undef RUNDIR_FUNCTION

/*
 * int rundir_read_<table>(const json_t *line, struct rundir_<table> *fields, struct err *e)
 *     Reads the fields of an event's line (launcher/rundir/follow.h); *fields borrows from `line`. ERR_PROTO
 *     names the field that is missing or invalid; the valid fields are set nevertheless.
 */
#define RUNDIR_READER(table, FIELDS) \
	int rundir_read_##table(const json_t *line, struct rundir_##table *fields, struct err *e);
RUNDIR_TABLES(RUNDIR_READER)
#undef RUNDIR_READER

/* clang-format on */

/* Appends a line to health.jsonl, as rundir_event_*() does to events.jsonl. */
void rundir_health(struct rundir *r, uint32_t generation, const struct rundir_health *fields);

/* An element of the list `agents` of hello, a new reference. NULL: no memory. */
json_t *rundir_agent_json(const struct rundir_agent *a);
/* Reads what `muster trace --json` printed; *v borrows from `o`. */
int rundir_verdict_read(const json_t *o, struct rundir_verdict *v, struct err *e);

#endif
