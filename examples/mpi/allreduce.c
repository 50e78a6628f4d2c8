/* A minimal check that every rank of an MPI job takes part: the sum of rank + 1 over all ranks.
 *
 * mpicc allreduce.c -o allreduce            (mpicc.mpich or mpicc.openmpi if both are installed)
 * command: [mpirun, ./allreduce]            in the job file, with framework: mpi
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, one, sum, length;
    char host[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);

    one = rank + 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s: sum %d\n", rank, size, host, sum);
    fflush(stdout);

    if (sum != size * (size + 1) / 2) {
        fprintf(stderr, "rank %d: sum is %d, not %d\n", rank, sum, size * (size + 1) / 2);
        MPI_Abort(MPI_COMM_WORLD, 1); /* not exit(): MPICH detects a plain exit on another node too late */
    }
    if (rank == 0) {
        const char *path = getenv("STEPSET_RESULT_FILE");
        FILE *file = path && *path ? fopen(path, "w") : NULL;
        printf("{\"stepset\": {\"step\": 1, \"progress\": 1.0}}\n");
        if (file) {
            fprintf(file, "{\"world_size\": %d, \"rank_sum\": %d}", size, sum);
            fclose(file);
        }
    }
    MPI_Finalize();
    return 0;
}
