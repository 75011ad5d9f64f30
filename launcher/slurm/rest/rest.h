/*
 * rest — Slurm's REST interface (slurmrestd), for hosts without Slurm's commands.
 *
 *     connect.c   the address, the token and the user; asks the server for its version
 *     call.c      one request and its answer; errors in words
 *     describe.c  a batch script as a job description
 *     fields.c    the table of sbatch's options and the members of a description
 *     answers.c   reads versions, jobs, partitions and nodes from answers
 *     rest.c      the operations
 *
 * The interface has versions, v0.0.38 (Slurm 22.05) and later ones, and a server speaks several. The
 * highest one that both sides know is used. Two forms of requests exist: v0.0.38 takes most options
 * of sbatch by similar names, and v0.0.39 and later take the fields of Slurm's job description.
 * The table in fields.c lists both. Answers of all versions are read by the same code, because
 * their differences are regular: a number may be an object {set, infinite, number}, a word may be a
 * list of words, and a member may have moved into another object.
 *
 * Sources: the OpenAPI specifications and the data parsers in Slurm's public repository, branches
 * slurm-22.05 to slurm-26.05. Tested with a slurmrestd of 22.05 (v0.0.38).
 *
 * Authentication is by a JSON Web Token (auth/jwt): in the environment (SLURM_JWT), or in a file. It
 * is sent to the server only, as a header; it is never on a command line, in a log, in an error, in
 * the run folder or in the environment of a job.
 */
#ifndef MUSTER_LAUNCHER_SLURM_REST_REST_H
#define MUSTER_LAUNCHER_SLURM_REST_REST_H

#include "base/err.h"
#include "launcher/slurm/queue_jobs.h"
#include "launcher/slurm/site.h"

struct slurm_rest;

/*
 * Where the server is. Texts; they are copied.
 *
 * url: unix:/path of a Unix socket, https://host[:port][/prefix], or http:// of a loopback address.
 * Over http:// anyone on the way could read the token. A socket of another user must not be in a
 * folder that everyone may write to: another user could have put it there to read tokens.
 *
 * token_file: a regular file of this user that nobody else may read; "": the variable SLURM_JWT.
 * ca_file: certificates to trust for https; "": those of the system.
 */
struct slurm_rest_options {
	const char *url, *token_file, *ca_file;
};

/* Checks the options, reads the token, and asks the server which versions it speaks. */
int slurm_rest_open(const struct slurm_rest_options *o, struct slurm_rest **out, struct err *e);
void slurm_rest_close(struct slurm_rest *r);
/* The version in use: 38 is v0.0.38. */
int slurm_rest_version(const struct slurm_rest *r);

/* As slurm_queue_submit(). The #SBATCH lines of the script become fields of the request, because
 * slurmrestd does not read them; an option that has no field is an error. Appends a line to `notes`
 * for each option that is left out because the run does the same by itself. */
int slurm_rest_submit(struct slurm_rest *r, const char *script, const char *dependency,
		      char id[LAUNCH_JOB_ID], struct buf *notes, struct err *e);
int slurm_rest_show(struct slurm_rest *r, const char *id, struct queue_job *out, struct err *e);
int slurm_rest_update(struct slurm_rest *r, const char *id, const struct queue_change *c,
		      struct err *e);
/* signal: its number; 0: the job is ended. */
int slurm_rest_cancel(struct slurm_rest *r, const char *id, int signal, struct err *e);
/* As slurm_site_ask(). */
int slurm_rest_site(struct slurm_rest *r, struct site *out, struct err *e);

#endif
