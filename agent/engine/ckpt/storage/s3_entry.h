/*
 * s3_entry — where the files of an entry of an object store lie, and what they are.
 *
 * A checkpoint is a pointer to its attempt (pointer.h), an attempt is a prefix of keys, and a
 * checkpoint that another program has copied there may be such a prefix too. A DIR is looked at in
 * the same way, for its own small files.
 *
 * The files of a published checkpoint never change, so its list is kept, and read again whenever its
 * manifest is opened: a reader then finds all files of one checkpoint, even if it is replaced
 * meanwhile. The functions may be called from several threads.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_S3_ENTRY_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_S3_ENTRY_H

#include "agent/engine/ckpt/storage/pointer.h"
#include "agent/engine/ckpt/storage/storage.h"
#include "base/s3/object.h"

/* The client of this process, opened when it is first used. */
int ckpt_s3_client(struct s3_client **out, struct err *e);

/* The pointer at this path: 1, 0 if there is none, or -1. etag may be NULL. */
int ckpt_s3_pointer(struct s3_client *c, const char *path, struct ckpt_pointer *out,
		    char etag[S3_ETAG], struct err *e);

/* Where the files of the entry or DIR `path` lie. ERR_NOTFOUND: it has none. */
int ckpt_s3_entry_place(struct s3_client *c, const char *path, struct s3_place *out, struct err *e);
/* Finds a file: its place, size and tag. ERR_NOTFOUND. */
int ckpt_s3_entry_file(struct s3_client *c, const char *path, struct s3_place *place,
		       struct s3_object *out, struct err *e);
/* Forgets what is known of the entry or DIR, which this process changes. */
void ckpt_s3_entry_forget(const char *path);

/* The operation `list` (s3_list.c). */
int ckpt_s3_list(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
		 void *arg, struct err *e);

/* Splits "DIR/NAME"; false if it has no parent in its bucket. */
bool ckpt_s3_split(const char *path, char *parent, size_t n, const char **name);

#endif
