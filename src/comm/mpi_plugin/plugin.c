/* The MPI plugin (plugin.h): the one file of the project that includes mpi.h. It is compiled into a library of its
 * own. */
#define _GNU_SOURCE 1 /* dladdr */
#include "comm/mpi_plugin/plugin.h"

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fo_mpi_batch {
	int n, room;
	MPI_Request *request;
	MPI_Status *status;
	struct message {
		int peer;
		bool receive, exact; /* exact: all bytes must come */
		int64_t bytes;
	} * message;
};

/* With MPI_THREAD_SERIALIZED one thread may call at a time. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool takes_turns;
static void begin(void)
{
	if (takes_turns)
		pthread_mutex_lock(&turn);
}
static int end(int error)
{
	if (takes_turns)
		pthread_mutex_unlock(&turn);
	return error;
}

/* An MPI's own parts look for its functions among those that all libraries of the process see (Open MPI's components
 * are not linked to libmpi), but what a program loads at run time is seen by itself alone. */
static void show_library(void)
{
	Dl_info where;
	int (*function)(int *, char ***, int, int *) = MPI_Init_thread;
	void *address;
	memcpy(&address, &function, sizeof address);
	if (dladdr(address, &where) && where.dli_fname)
		(void)dlopen(where.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static MPI_Comm *new_comm(MPI_Comm c)
{
	MPI_Comm *out = malloc(sizeof *out);
	if (out)
		*out = c;
	MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
	return out;
}

/* Who shares memory with this process, and how many such groups there are: their first ranks count them. */
static int find_nodes(struct fo_mpi_world *w)
{
	MPI_Comm node, first;
	int error = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &node);
	if (error)
		return error;
	MPI_Comm_rank(node, &w->local_rank);
	MPI_Comm_size(node, &w->local_ranks);
	error = MPI_Comm_split(MPI_COMM_WORLD, w->local_rank != 0, w->rank, &first);
	if (error)
		return error;
	int of[2];
	MPI_Comm_rank(first, &of[0]);
	MPI_Comm_size(first, &of[1]);
	error = MPI_Bcast(of, 2, MPI_INT, 0, node);
	w->node = of[0];
	w->nodes = of[1];
	MPI_Comm_free(&first);
	MPI_Comm_free(&node);
	return error;
}

static int start(struct fo_mpi_world *w)
{
	int level = MPI_THREAD_SINGLE, *most = NULL, known = 0;
	show_library();
	int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	if (error)
		return error;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	takes_turns = level == MPI_THREAD_SERIALIZED;
	w->one_thread = level < MPI_THREAD_SERIALIZED;
	MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &w->ranks);
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known);
	w->tag_most = known ? *most : 32767; /* the least that the standard allows */
	error = find_nodes(w);
	w->comm = error ? NULL : new_comm(MPI_COMM_WORLD);
	if (!error && !w->comm)
		error = MPI_ERR_NO_MEM;
	return error;
}

static int finish(void)
{
	begin();
	return end(MPI_Finalize());
}

static void text(int error, char *out, size_t size)
{
	char all[MPI_MAX_ERROR_STRING + 1] = "";
	int n = 0;
	begin();
	end(MPI_Error_string(error, all, &n));
	snprintf(out, size, "%s", n ? all : "an error that it has no words for");
}

static int split(void *comm, int colour, void **out, int *rank, int *ranks)
{
	MPI_Comm c;
	begin();
	int error = MPI_Comm_split(*(MPI_Comm *)comm, colour, 0, &c);
	if (!error) {
		MPI_Comm_rank(c, rank);
		MPI_Comm_size(c, ranks);
		*out = new_comm(c);
		if (!*out)
			error = MPI_ERR_NO_MEM;
	}
	return end(error);
}

static int copy(void *comm, void **out)
{
	MPI_Comm c;
	begin();
	int error = MPI_Comm_dup(*(MPI_Comm *)comm, &c);
	if (!error)
		*out = new_comm(c);
	if (!error && !*out)
		error = MPI_ERR_NO_MEM;
	return end(error);
}

static void release(void *comm)
{
	MPI_Comm *c = comm;
	begin();
	if (*c != MPI_COMM_WORLD)
		MPI_Comm_free(c);
	end(0);
	free(c);
}

/* ---- messages ---- */

static void batch_free(struct fo_mpi_batch *b)
{
	if (!b)
		return;
	begin();
	for (int i = 0; i < b->n; i++)
		if (b->request[i] != MPI_REQUEST_NULL)
			MPI_Request_free(&b->request[i]);
	end(0);
	free(b->request);
	free(b->status);
	free(b->message);
	free(b);
}

static struct fo_mpi_batch *batch_new(int messages)
{
	struct fo_mpi_batch *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->room = messages;
	b->request = calloc((size_t)messages + 1, sizeof *b->request);
	b->status = calloc((size_t)messages + 1, sizeof *b->status);
	b->message = calloc((size_t)messages + 1, sizeof *b->message);
	if (b->request && b->status && b->message)
		return b;
	batch_free(b);
	return NULL;
}

static int send(struct fo_mpi_batch *b, void *comm, const void *from, int64_t bytes, int peer, int tag)
{
	if (b->n == b->room)
		return MPI_ERR_INTERN;
	begin();
	int error = end(MPI_Isend(from, (int)bytes, MPI_BYTE, peer, tag, *(MPI_Comm *)comm, &b->request[b->n]));
	if (!error)
		b->message[b->n++] = (struct message){ .peer = peer, .bytes = bytes };
	return error;
}

static int receive(struct fo_mpi_batch *b, void *comm, void *to, int64_t bytes, int peer, int tag)
{
	if (b->n == b->room)
		return MPI_ERR_INTERN;
	begin();
	int error = end(MPI_Irecv(to, (int)bytes, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, *(MPI_Comm *)comm,
				  &b->request[b->n]));
	if (!error)
		b->message[b->n++] = (struct message){
			.peer = peer, .receive = true, .exact = peer >= 0, .bytes = bytes
		};
	return error;
}

static int test(struct fo_mpi_batch *b, bool *over, struct fo_mpi_fault *fault)
{
	int done = 0, count = 0;
	*fault = (struct fo_mpi_fault){ .peer = -1 };
	*over = !b->n;
	if (*over)
		return 0;
	begin();
	int error = end(MPI_Testall(b->n, b->request, &done, b->status));
	*over = !error && done;
	for (int i = 0; i < b->n && (error || done); i++) {
		const struct message *m = &b->message[i];
		int of = b->status[i].MPI_ERROR;
		if (error == MPI_ERR_IN_STATUS && (of == MPI_SUCCESS || of == MPI_ERR_PENDING))
			continue;
		if (!error && m->receive)
			MPI_Get_count(&b->status[i], MPI_BYTE, &count);
		if (!error && (!m->exact || count == m->bytes))
			continue;
		*over = false;
		*fault = (struct fo_mpi_fault){ m->peer, m->receive, error ? -1 : count, m->bytes };
		return error == MPI_ERR_IN_STATUS ? of : error;
	}
	if (*over)
		b->n = 0;
	return error;
}

static void cancel(struct fo_mpi_batch *b)
{
	begin();
	for (int i = 0; i < b->n; i++)
		if (b->message[i].receive && b->request[i] != MPI_REQUEST_NULL)
			MPI_Cancel(&b->request[i]);
	end(0);
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#ifdef OMPI_MAJOR_VERSION
#define MADE_FOR "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#elif defined MPICH_VERSION
#define MADE_FOR "MPICH " MPICH_VERSION
#else
#define MADE_FOR "an MPI of standard " TEXT(MPI_VERSION) "." TEXT(MPI_SUBVERSION)
#endif

__attribute__((visibility("default"))) const struct fo_mpi_plugin *fo_mpi_plugin(void);
const struct fo_mpi_plugin *fo_mpi_plugin(void)
{
	static const struct fo_mpi_plugin plugin = {
		.abi = FO_MPI_ABI,
		.made_for = MADE_FOR,
		.start = start,
		.finish = finish,
		.text = text,
		.split = split,
		.copy = copy,
		.release = release,
		.batch_new = batch_new,
		.batch_free = batch_free,
		.send = send,
		.receive = receive,
		.test = test,
		.cancel = cancel,
	};
	return &plugin;
}
