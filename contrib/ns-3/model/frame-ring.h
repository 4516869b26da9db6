/*
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef DRAY_FRAME_RING_H
#define DRAY_FRAME_RING_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ns3
{

/**
 * \brief Frames on their way from one thread to another one, in order, without a lock.
 *
 * One thread writes into the slots behind the last frame and publishes them; the other one reads
 * the first frames where they lie and releases them.
 */
class FrameRing
{
  public:
    /**
     * \param slots the number of frames that the ring holds
     * \param bytes the length of the longest frame
     */
    FrameRing(uint32_t slots, uint32_t bytes)
        : m_slots(slots),
          m_bytes(bytes),
          m_stride((bytes + 63) / 64 * 64),
          m_lengths(slots),
          m_frames(static_cast<size_t>(slots) * m_stride)
    {
    }

    /// \return the length of the longest frame
    uint32_t GetBytes() const
    {
        return m_bytes;
    }

    /// \return the number of free slots, for the writer
    uint32_t GetRoom() const
    {
        return m_slots - (m_written.load(std::memory_order_relaxed) -
                          m_released.load(std::memory_order_acquire));
    }

    /// \return the number of frames, for the reader
    uint32_t GetCount() const
    {
        return m_written.load(std::memory_order_seq_cst) -
               m_released.load(std::memory_order_relaxed);
    }

    /**
     * \param index the number of a free slot, from 0 on
     * \return its bytes, for the writer
     */
    uint8_t* GetFree(uint32_t index)
    {
        return Bytes(m_written.load(std::memory_order_relaxed) + index);
    }

    /**
     * \param index the number of a free slot, from 0 on
     * \param length the length of its frame, which may exceed the slot if it was cut
     */
    void SetLength(uint32_t index, uint32_t length)
    {
        m_lengths[(m_written.load(std::memory_order_relaxed) + index) % m_slots] = length;
    }

    /// \param count the number of filled slots to pass to the reader
    void Publish(uint32_t count)
    {
        m_written.store(m_written.load(std::memory_order_relaxed) + count,
                        std::memory_order_seq_cst);
    }

    /**
     * \param index the number of a frame, from 0 on
     * \return its bytes, for the reader
     */
    const uint8_t* GetFrame(uint32_t index)
    {
        return Bytes(m_released.load(std::memory_order_relaxed) + index);
    }

    /**
     * \param index the number of a frame, from 0 on
     * \return its length
     */
    uint32_t GetLength(uint32_t index) const
    {
        return m_lengths[(m_released.load(std::memory_order_relaxed) + index) % m_slots];
    }

    /// \param count the number of frames, from the first one on, that the reader is done with
    void Release(uint32_t count)
    {
        m_released.store(m_released.load(std::memory_order_relaxed) + count,
                         std::memory_order_release);
    }

  private:
    /**
     * \param number the number of a frame
     * \return the bytes of its slot
     */
    uint8_t* Bytes(uint32_t number)
    {
        return &m_frames[static_cast<size_t>(number % m_slots) * m_stride];
    }

    const uint32_t m_slots;                       //!< number of slots, a power of two
    const uint32_t m_bytes;                       //!< length of the longest frame
    const uint32_t m_stride;                      //!< distance between two slots
    std::vector<uint32_t> m_lengths;              //!< lengths of the frames
    std::vector<uint8_t> m_frames;                //!< bytes of the frames
    alignas(64) std::atomic<uint32_t> m_written{0};  //!< frames published so far
    alignas(64) std::atomic<uint32_t> m_released{0}; //!< frames released so far
};

} // namespace ns3

#endif /* DRAY_FRAME_RING_H */
