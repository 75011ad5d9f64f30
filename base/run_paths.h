/*
 * run_paths — the names of the files in a run folder.
 *
 * muster and the agents both write there, and tools read. launcher/rundir/rundir.h says what each
 * file holds and who writes it. Paths are built here alone, so that both sides agree.
 *
 *     job.ini  submit-<n>.ini  submit-<n>.sbatch  submissions.jsonl  plan-<generation>.json  events.jsonl  metrics.jsonl
 *     health.jsonl  time.jsonl  ledger.jsonl  rollbacks.jsonl  lock
 *     metrics.<n>.jsonl and so on: earlier parts of these files (base/segments.h)
 *     logs/id  logs/<node>-<rank>.log  logs/launch-<generation>.log  logs/hosts-<generation>
 *     logs/<node>-<rank>.log.part  logs/<node>-<rank>.log.next, while a log moves there (agent/log_collect.c)
 *     logs/slurm-<id>.out  logs/guard.log  .pmix/
 *     preflight.json  copied  choices  state.json  control  tensorboard/events.out.tfevents.*
 *     trace/gen-<generation>/comm-<rank>.json
 *     trace/gen-<generation>/timeline-<rank>.json
 *     trace/gen-<generation>/stacks-<rank>.txt
 *     trace/gen-<generation>/steps-<rank>.json
 *     trace/gen-<generation>/torch-<rank>  torch-<rank>.json  torch-<rank>.pipe
 *     trace/gen-<generation>/error-<rank>.json
 *
 * A path that does not fit is cut off; RUN_PATH is enough for a run folder of PATH_MAX bytes.
 */
#ifndef MUSTER_BASE_RUN_PATHS_H
#define MUSTER_BASE_RUN_PATHS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { RUN_PATH = PATH_MAX + 320 };

#define RUN_JOB         "job.ini"
#define RUN_EVENTS      "events.jsonl"
#define RUN_METRICS     "metrics.jsonl"
#define RUN_HEALTH      "health.jsonl"
#define RUN_TIME        "time.jsonl"
#define RUN_LEDGER      "ledger.jsonl"
#define RUN_LOCK        "lock"
#define RUN_SUBMISSIONS "submissions.jsonl"
#define RUN_ROLLBACKS   "rollbacks.jsonl"
#define RUN_LOGS        "logs"
#define RUN_TRACES      "trace"
#define RUN_CKPT        "ckpt"
#define RUN_PMIX        ".pmix"
#define RUN_PREFLIGHT   "preflight.json"
#define RUN_STATE       "state.json"
#define RUN_CONTROL     "control"
#define RUN_TENSORBOARD "tensorboard"
/* The algorithms that the run chose by measurement (base/choices.h). */
#define RUN_CHOICES "choices"
/* It exists once a checkpoint was copied to checkpoint.remote. */
#define RUN_COPIED "copied"

/* Tells the run from an earlier one in the same folder; it exists if logs stay on the nodes. */
#define RUN_LOGS_ID RUN_LOGS "/id"

/* A file or folder of a fixed name, one of the above. */
void run_path(char out[RUN_PATH], const char *run, const char *name);
void run_path_submission(char out[RUN_PATH], const char *run, uint32_t number);
/* The batch script of a submission. */
void run_path_script(char out[RUN_PATH], const char *run, uint32_t number);
void run_path_plan(char out[RUN_PATH], const char *run, uint32_t generation);
/* The log of one agent. */
void run_path_rank_log(char out[RUN_PATH], const char *run, const char *node, int rank);
/* What the agents of a generation, and srun, print outside their own logs. */
void run_path_launch_log(char out[RUN_PATH], const char *run, uint32_t generation);
/* The host file that srun gets. */
void run_path_hosts(char out[RUN_PATH], const char *run, uint32_t generation);
/* The output of a submitted job. id: the job's id, or Slurm's pattern for it, "%j". */
void run_path_slurm_log(char out[RUN_PATH], const char *run, const char *id);
/* The guards of the run and their sruns write it. */
void run_path_guard_log(char out[RUN_PATH], const char *run);
/* The folder of a generation's flight recorders and timelines. */
void run_path_trace(char out[RUN_PATH], const char *run, uint32_t generation);
/* One rank's flight recorder and its timeline. trace: as run_path_trace() gives it. */
void run_path_recorder(char out[RUN_PATH], const char *trace, int rank);
void run_path_timeline(char out[RUN_PATH], const char *trace, int rank);
/* What the threads of one rank did when it made no progress. */
void run_path_stacks(char out[RUN_PATH], const char *trace, int rank);
/* What one rank did in the steps that [trace] steps selects. */
void run_path_steps(char out[RUN_PATH], const char *trace, int rank);
/* What PyTorch's flight recorder appends the rank to, for the name of its dump: the value of its
 * variables TORCH_FR_DUMP_TEMP_FILE and TORCH_NCCL_DEBUG_INFO_TEMP_FILE. */
void run_path_torch_prefix(char out[RUN_PATH], const char *trace);
/* A FIFO that PyTorch makes and removes: it writes its dump if somebody writes to it. dir: a folder
 * of this host. run_path_torch_prefix() of it is the value of TORCH_NCCL_DEBUG_INFO_PIPE_FILE. */
void run_path_torch_pipe(char out[RUN_PATH], const char *dir, int rank);

/* Where PyTorch writes the exception that ended a task: the value of TORCHELASTIC_ERROR_FILE. */
void run_path_error(char out[RUN_PATH], const char *trace, int rank);

/* The number in a file's name; -1: the name is of another kind. */
long run_submission_number(const char *name); /* of submit-<n>.ini */
long run_plan_generation(const char *name);   /* of plan-<generation>.json */
long run_trace_generation(const char *name);  /* of gen-<generation> */
long run_recorder_rank(const char *name);     /* of comm-<rank>.json */
long run_timeline_rank(const char *name);     /* of timeline-<rank>.json */
long run_stacks_rank(const char *name);       /* of stacks-<rank>.txt */
long run_steps_rank(const char *name);        /* of steps-<rank>.json */
/* of torch-<rank>, torch-<rank>.json, or nccl_trace_rank_<rank>, which is PyTorch's own name */
long run_torch_rank(const char *name);
/* Whether an agent or its task wrote the file of this name in a trace folder; true for its temporary files,
 * too. */
bool run_is_trace_file(const char *name);

#endif
