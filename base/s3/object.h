/*
 * object — whole objects of a store: writing, reading, listing and removing them.
 *
 * No answer is taken on trust: what was written is asked for again and compared, because a store
 * may say yes and keep nothing, and a lost answer may have been a yes.
 */
#ifndef MUSTER_BASE_S3_OBJECT_H
#define MUSTER_BASE_S3_OBJECT_H

#include "base/s3/s3.h"

struct s3_object {
	int64_t size;
	char etag[S3_ETAG];
	char sha256[96]; /* the store's base64 checksum; "": it keeps none */
};

/* What must hold for a write. */
enum s3_if { S3_ALWAYS, S3_IF_NONE, S3_IF_SAME };

/* Sets what the store knows of the object. ERR_NOTFOUND. */
int s3_head(struct s3_client *c, const struct s3_place *at, struct s3_object *out, struct err *e);

/* Appends the whole object, of at most `most` bytes. etag may be NULL. ERR_NOTFOUND. */
int s3_get(struct s3_client *c, const struct s3_place *at, size_t most, struct buf *out,
	   char etag[S3_ETAG], struct err *e);

/* Writes an object of up to 5 GB, and looks whether the store has it. S3_IF_NONE: ERR_STALE if an
 * object with other bytes is there; with the same bytes it is a success. S3_IF_SAME: ERR_STALE if
 * the object's etag is no longer `etag`. */
int s3_put(struct s3_client *c, const struct s3_place *at, const void *data, size_t n,
	   enum s3_if when, const char *etag, struct err *e);

/* An object that does not exist is a success. */
int s3_delete(struct s3_client *c, const struct s3_place *at, struct err *e);
/* Removes all objects whose keys begin with the prefix, 1000 at a time. The place's key is the
 * prefix and a "/" is added. */
int s3_delete_below(struct s3_client *c, const struct s3_place *at, struct err *e);

/* An entry of a list: an object; or, if `folder`, what several keys have in common up to a "/". */
struct s3_listed {
	const char *key; /* a folder's ends with "/" */
	bool folder;
	int64_t size;
	char etag[S3_ETAG];
	double written; /* seconds since 1970; 0: unknown */
};
typedef int s3_list_visit(void *arg, const struct s3_listed *o, struct err *e);
/* Visits what lies below the place ("key/…", or the whole bucket if the key is ""). deep: all keys,
 * otherwise folders are not entered. most: end after so many; 0: all. */
int s3_list(struct s3_client *c, const struct s3_place *at, bool deep, int64_t most,
	    s3_list_visit *visit, void *arg, struct err *e);

/* Uploads in parts that were begun and not completed. */
struct s3_unfinished {
	const char *key, *id;
	double begun; /* seconds since 1970; 0: unknown */
};
typedef int s3_unfinished_visit(void *arg, const struct s3_unfinished *u, struct err *e);
/* Those whose keys begin with the place's key. */
int s3_list_unfinished(struct s3_client *c, const struct s3_place *at, s3_unfinished_visit *visit,
		       void *arg, struct err *e);
int s3_abort_upload(struct s3_client *c, const struct s3_place *at, const char *id, struct err *e);

#endif
