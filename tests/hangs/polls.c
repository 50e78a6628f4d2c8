/* A program of MPI whose ranks wait or compute, as its argument states. Each rank prints its rank and its pid. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size, value;

static void receive(int from) { MPI_Recv(&value, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static void send(int to) { MPI_Send(&value, 1, MPI_INT, to, 0, MPI_COMM_WORLD); }
static void all_reduce(void) {
    int sum;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* Leaves return addresses of calls of MPI on the part of the stack that later functions use. */
static int deep(int depth) {
    volatile char space[200];
    space[0] = depth;
    all_reduce();
    return depth ? deep(depth - 1) + space[0] : 0;
}

static void compute(double seconds) {
    volatile char unused[1 << 14];
    volatile double x = unused[5];
    for (time_t end = time(NULL) + seconds; time(NULL) < end;)
        for (int i = 0; i < 1000000; i++) x += i;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void sort(void) {
    static int numbers[1 << 20];
    for (;;) {
        for (int i = 0; i < 1 << 20; i++) numbers[i] = rand();
        qsort(numbers, 1 << 20, sizeof *numbers, compare);
    }
}

static void adds_slowly(void *in, void *out, int *length, MPI_Datatype *type) { compute(1000); }

int main(int argc, char **argv) {
    const char *kind = argv[1];
    MPI_Comm others[2];
    MPI_Op slow;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &others[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &others[1]);
    MPI_Op_create(adds_slowly, 1, &slow);
    deep(20);
    printf("here %d %d\n", rank, getpid());
    fflush(stdout);
    if (!strcmp(kind, "receives") && rank == 0) receive(1);
    if (!strcmp(kind, "all receive")) receive((rank + 1) % size);
    if (!strcmp(kind, "sleeps") && rank == 1) sleep(1000);
    if (!strcmp(kind, "elsewhere") && rank == 1) receive(0);
    if (!strcmp(kind, "computes") && rank == 1) compute(1000);
    if (!strcmp(kind, "communicators")) MPI_Barrier(others[rank % 2]);
    if (!strcmp(kind, "all compute")) compute(1000);
    if (!strcmp(kind, "sorts") && rank == 1) sort();
    if (!strcmp(kind, "reduces") && rank < 2) MPI_Allreduce(&rank, &value, 1, MPI_INT, slow, others[0]);
    while (!strcmp(kind, "ping-pong")) {
        if (rank == 0) send(1), receive(1);
        if (rank == 1) receive(0), send(0);
    }
    while (!strcmp(kind, "probes") && rank == 0) MPI_Iprobe(1, 0, MPI_COMM_WORLD, &value, MPI_STATUS_IGNORE);
    if (!strcmp(kind, "waits for a file")) {
        if (rank == 0) receive(1);
        while (rank == 1 && access(argv[2], F_OK)) usleep(10000);
        if (rank == 1) send(0);
    }
    if (strcmp(kind, "receives")) all_reduce();
    MPI_Finalize();
    return 0;
}
