/*
 * controller — Slurm's queue from outside a job: submit, ask, change, cancel.
 *
 * There are two ways to Slurm's controller, and one interface for both:
 *
 *     by commands  sbatch, scontrol, sinfo, scancel (controller_commands.c, queue.c)
 *     by REST      slurmrestd, if [slurm] rest or MUSTER_SLURM_REST names it (rest/rest.h); no
 *                  command of Slurm is needed on this host
 *
 * Inside an allocation muster needs srun, so what runs there (launch_slurm, the chain, requeues) uses
 * the commands alone.
 */
#ifndef MUSTER_LAUNCHER_SLURM_CONTROLLER_H
#define MUSTER_LAUNCHER_SLURM_CONTROLLER_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/slurm/queue_jobs.h"
#include "launcher/slurm/site.h"
#include "plan/spec/job/job.h"

struct slurm_controller;

/* The way that [slurm] rest and MUSTER_SLURM_REST choose; the variable wins, and an empty one means
 * the commands. With REST it asks the server for its version, otherwise it cannot fail. */
int slurm_controller_open(const struct job *job, struct slurm_controller **out, struct err *e);
void slurm_controller_close(struct slurm_controller *c);
/* For people: "Slurm's commands", or "Slurm's REST interface v0.0.41". */
const char *slurm_controller_name(const struct slurm_controller *c);

/* Submits the text of a batch script. dependency: replaces the one in the script; NULL: the script's.
 * Appends what people should know to `notes`, each with its newline. */
int slurm_controller_submit(struct slurm_controller *c, const char *script, const char *dependency,
			    char id[LAUNCH_JOB_ID], struct buf *notes, struct err *e);
/* Appends when Slurm expects to start the script, as a line. Nothing if that cannot be known. */
void slurm_controller_start(struct slurm_controller *c, const char *script, struct buf *out);
/* Partitions and nodes. An error says that nothing was submitted, and what helps. */
int slurm_controller_site(struct slurm_controller *c, struct site *out, struct err *e);

/* ERR_NOTFOUND: Slurm does not know the job, or no longer. */
int slurm_controller_show(struct slurm_controller *c, const char *id, struct queue_job *out,
			  struct err *e);
int slurm_controller_update(struct slurm_controller *c, const char *id,
			    const struct queue_change *change, struct err *e);
/* signal: its number, for all processes of the job; 0: the job is ended. */
int slurm_controller_cancel(struct slurm_controller *c, const char *id, int signal, struct err *e);

/* --- The operations by commands --- */

/* Reads the line of `scontrol --oneliner show job`. Any text gives either a job or an error. */
int slurm_commands_read_job(const char *text, const char *id, struct queue_job *out, struct err *e);
int slurm_commands_show(const char *id, struct queue_job *out, struct err *e);
int slurm_commands_update(const char *id, const struct queue_change *change, struct err *e);
int slurm_commands_cancel(const char *id, int signal, struct err *e);

#endif
