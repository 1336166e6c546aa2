"""Sicre and Jegou, ICMR 2015: claims on memory vectors."""

from benchmarks.papers._frame import Claim, Entry, Paper

_PARIS = (
    "paris_subset_cnn.npz",
    "paris_subset_bovw20k.npz",
    "ukbench1000_cnn.npz",
    "ukbench1000_bovw20k.npz",
    "ukbench1000_codebook20k.npz",
)
_UKBENCH = ("ukbench1000_cnn.npz", "ukbench1000_vlad64.npz")
_PICTURES = (*_PARIS, "ukbench_sample80.npz")

PAPER = Paper(
    "sicre",
    "Sicre and Jegou: Memory Vectors for Particular Object Retrieval with Multiple "
    "Queries, ICMR 2015",
    "MemoryVectorQuery",
    "MemoryVectorQuery.from_paper()",
    (
        "The data are 276 photographs of 5 landmarks, with 1,000 images of UKbench as "
        "background. The paper has Oxford5k and Paris6k, with 100,000 images as "
        "background.",
        "The paper combines the 5 marked queries of a landmark, as Figure 2 does here. "
        "Otherwise the photographs of each landmark are divided into sets of 5 at "
        "random, which gives 55 sets for a paired test.",
        "In Table 2, three images of an object of UKbench search for the fourth one; "
        "each image is left out in turn. The figures of Table 2 are not legible in our "
        "copy of the paper.",
        "CNN features come from EfficientNet-lite0 instead of a network of 2014.",
        "VLAD vectors are made from the 20,000 RootSIFT words, to which the "
        "descriptors were rounded. As in the paper, VLAD-3c joins 16, 64 and 256 "
        "clusters. Clusters are learned on UKbench, PCA on all 1,276 images.",
        "tridD (``TriangulationEmbedding``) needs descriptors, which only the 80 "
        "pictures of UKbench have. It has 16 words; its authors use 64. Three pictures "
        "of an object search for the fourth one.",
    ),
    ("paris", "ukbench", "pictures"),
    ("All tables and figures show results.",),
    "benchmarks.papers._sicre_runs",
    (
        Entry(
            "Figure 1",
            "weights and Gram matrix",
            (
                Claim(
                    "cnn",
                    "CNN: queries that differ from the others have larger weights "
                    "(rank correlation of weight and dissimilarity)",
                    "3.3",
                    "larger contributions (highest weights)",
                    1.0,
                    "correlation",
                ),
                Claim(
                    "tridd",
                    "The same for tridD, sets of four pictures",
                    "3.3",
                    "relatively different ... highest weights",
                    0.97,
                    "correlation",
                ),
                Claim(
                    "vlad",
                    "The same for VLAD-3c",
                    "3.3",
                    "relatively different ... highest weights",
                    0.97,
                    "correlation",
                ),
            ),
            _PICTURES,
        ),
        Entry(
            "Figure 2",
            "precision-recall curves of the marked queries",
            (
                Claim(
                    "sum",
                    "The memory vector is better than the sum",
                    "4.2",
                    "our construction compared to sum",
                ),
            ),
            _PARIS,
        ),
        Entry(
            "Table 1",
            "full representations",
            (
                Claim(
                    "cnn",
                    "CNN: the memory vector is better than the average",
                    "4.2",
                    "CNN features receive the largest improvement",
                    0.016,
                ),
                Claim(
                    "vlad",
                    "VLAD with 256 clusters: the memory vector is better than the "
                    "average",
                    "4.2",
                    "increase ... for all representations",
                    0.006,
                ),
                Claim(
                    "largest",
                    "The gain of CNN is larger than that of VLAD",
                    "4.2",
                    "CNN features receive the largest improvement",
                    0.010,
                ),
                Claim(
                    "cnn_background",
                    "CNN, among background images: the memory vector is better than "
                    "the average",
                    "4.2",
                    "increase ... for all representations",
                    0.008,
                ),
                Claim(
                    "vlad_background",
                    "VLAD with 256 clusters, among background images: the memory "
                    "vector is better than the average",
                    "4.2",
                    "increase ... for all representations",
                    0.006,
                ),
                Claim(
                    "tridd",
                    "tridD: the memory vector is better than the average",
                    "4.2",
                    "increase ... for all representations",
                    0.001,
                ),
                Claim(
                    "tridd smaller",
                    "The gain of tridD is smaller than that of CNN, same pictures",
                    "4.2",
                    "comparatively smaller for tridD",
                    0.016,
                    missing="the average already finds all pictures",
                ),
            ),
            _PICTURES,
        ),
        Entry(
            "Table 2",
            "short vectors",
            (
                Claim(
                    "cnn",
                    "CNN with 128, 256 and 512 dimensions: the memory vector is better "
                    "than the average",
                    "4.2",
                    "especially with CNN descriptors",
                ),
                Claim(
                    "vlad",
                    "VLAD with 128, 256 and 512 dimensions: the memory vector is "
                    "better than the average",
                    "4.2",
                    "a larger improvement in this setup",
                ),
                Claim(
                    "short",
                    "CNN: the gain is larger for short vectors than for full ones",
                    "4.2",
                    "than for the full representations",
                ),
                Claim(
                    "especially",
                    "The gain of short CNN vectors is larger than that of VLAD",
                    "4.2",
                    "especially with CNN descriptors",
                ),
                Claim(
                    "tridd",
                    "tridD with 128, 256 and 512 dimensions: the memory vector is "
                    "better than the average",
                    "4.2",
                    "a larger improvement in this setup",
                    missing="80 pictures have fewer than 128 principal components",
                ),
            ),
            _UKBENCH,
        ),
        Entry(
            "Figure 3",
            "mAP by dimensions of CNN vectors",
            (
                Claim(
                    "more",
                    "The gain is larger with 512 dimensions than with 64",
                    "4.2",
                    "64 ... strategy is not effective",
                ),
                Claim(
                    "effective",
                    "With 128, 256 and 512 dimensions, the memory vector is better "
                    "than the average",
                    "4.2",
                    "concur with ... Oxford buildings",
                ),
            ),
            (*_PARIS, "ukbench1000_vlad64.npz"),
        ),
        Entry(
            "Table 3",
            "Paris, with and without background",
            (
                Claim(
                    "cnn",
                    "CNN with 128, 256 and 512 dimensions: the memory vector is better "
                    "than the average",
                    "4.2",
                    "concur with the ones observed on Oxford",
                    0.0057,
                ),
                Claim(
                    "vlad3c",
                    "VLAD-3c with 128, 256 and 512 dimensions: the memory vector is "
                    "better than the average",
                    "4.2",
                    "concur with the ones observed on Oxford",
                    0.008,
                ),
                Claim(
                    "vlad",
                    "VLAD with 256 clusters: the memory vector is better than the "
                    "average",
                    "4.2",
                    "concur with the ones observed on Oxford",
                    0.007,
                ),
                Claim(
                    "short",
                    "CNN: the gain is larger for short vectors than for full ones",
                    "4.2",
                    "than for the full representations",
                    0.0057,
                ),
                Claim(
                    "cnn_background",
                    "Background, CNN with 128, 256 and 512 dimensions: the memory "
                    "vector is better than the average",
                    "4.2",
                    "concur with the ones observed on Oxford",
                    0.004,
                ),
                Claim(
                    "vlad3c_background",
                    "Background, VLAD-3c with 128, 256 and 512 dimensions: the "
                    "memory vector is better than the average",
                    "4.2",
                    "concur with the ones observed on Oxford",
                    0.0037,
                ),
                Claim(
                    "vlad_background",
                    "Background, VLAD with 256 clusters: the memory vector is better "
                    "than the average",
                    "4.2",
                    "concur with the ones observed on Oxford",
                    0.008,
                ),
            ),
            _PARIS,
        ),
    ),
)
